"""One run of a command: records in, rows and rejects out, a manifest beside them.

What a command contributes is a function from one record to rows (`RecordFunction`), or from all records to rows
(`StreamFunction`) where rows depend on each other. Everything else is here: reading, counting, rejecting, resuming,
renaming.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from data_tools.duplicates.table import HashTable
from data_tools.errors import DataToolsError, RecordError, closest
from data_tools.fields import optional_text
from data_tools.job import (
    INCOMPLETE,
    ROWS,
    Job,
    Output,
    Part,
    RecordFunction,
    Reject,
    Row,
    StreamFunction,
    Summary,
    require_source,
)
from data_tools.manifest import FileNote, Plan, made, manifest, refuse_folders, refuse_foreign, write_manifest
from data_tools.progress import Meter
from data_tools.reading import Missed, Record, Unreadable, scan_records
from data_tools.records import format_line, record_id
from data_tools.work import LOCK, Work, begun, working

REJECTS = "rejects"
MOST_NAMES = 1000
"""Columns that are remembered to suggest one."""

REPEATED_ID = "repeated_id"
"""The reason for a reject whose id another record had before."""

RESERVED = (REJECTS, LOCK)
"""Names in the work folder, which no output can have."""


def run_records(job: Job, function: RecordFunction) -> Summary:
    """Apply a function to every record. A killed run goes on where its journal stands."""

    def outputs(work: "Work | _Nowhere") -> None:
        for place, row in _rows(job, work, skip=work.read):
            if row is not None:
                _store_all(job, work, row, function(row))
            work.advance(place)

    return _run(job, outputs)


def run_stream(job: Job, function: StreamFunction) -> Summary:
    """Apply a function to all records together. A killed run starts anew."""

    def outputs(work: "Work | _Nowhere") -> None:
        if work.read and isinstance(work, Work):
            work.restart()
        rows = (row for _, row in _rows(job, work) if row is not None)
        for output in function(rows):
            _store(job, work, output, None)

    return _run(job, outputs)


def scan(job: Job, missed: Missed) -> Iterator[Row]:
    """The records of a job's source, for commands that write nothing; those that cannot be read go to `missed`.

    Raises: `DataToolsError` at the end if there were records, and none could be read.
    """
    own = Missed()
    work = _Noting(str(job.source), (own, missed))
    found = False
    for _, row in _rows(job, work):
        if row is not None:
            found = True
            yield row
    if own.count and not found:
        raise DataToolsError(own.none_left(job.source))


# -------------------------------------------------------------------------------------------------------- reading


def _rows(job: Job, work: "Work | _Nowhere", *, skip: int = 0) -> Iterator[tuple[int, Row | None]]:
    """The records of the shard with the number of records read so far; None where there is none or it was rejected."""
    place = skip
    ids = _Ids(job, skip) if job.distinct else None
    with Meter(job.command, quiet=job.quiet) as meter:
        for number, item in scan_records(job.source, skip=skip):
            place += 1
            meter.at(place)
            record = _renamed(item, job.columns)
            if not job.shard.takes(_shard_place(job, item, place - 1)):
                if ids and not isinstance(record, Unreadable):
                    ids.first(Row(record, record_id(record), str(job.source), number))
                yield place, None
                continue
            work.counts["read"] += 1
            if isinstance(record, Unreadable):
                if job.strict:
                    raise RecordError(f"{job.source}:{number}: {record.message}", reason=record.reason)
                _store(job, work, Reject(record.reason, record.message, number), None)
                yield place, None
                continue
            row = Row(record, record_id(record), str(job.source), number)
            first = ids.first(row) if ids else None
            if first is None:
                yield place, row
                continue
            says = f"id '{row.id}' is that of line {first} already"
            if job.strict:
                raise RecordError(f"{row.where}: {says}.", reason=REPEATED_ID)
            _store(job, work, Reject(REPEATED_ID, says, number), row)
            yield place, None


class _Ids:
    """The lines where ids stood first, by hash."""

    def __init__(self, job: Job, skip: int) -> None:
        self._lines = HashTable()
        if skip:  # a run that goes on: what it has read before counts too
            for number, item in islice(scan_records(job.source), skip):
                record = _renamed(item, job.columns)
                if not isinstance(record, Unreadable):
                    self.first(Row(record, record_id(record), str(job.source), number))

    def first(self, row: Row) -> int | None:
        """The line where the id of a row stood before; None, and remembered, if nowhere."""
        key = blake2b(row.id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        line = self._lines.setdefault(int.from_bytes(key, "big"), row.line)
        return None if line == row.line else line


def _shard_place(job: Job, item: Record | Unreadable, place: int) -> int:
    """What a shard is chosen by: the place of a record, or the value that it shares with others."""
    if job.together is None or isinstance(item, Unreadable):
        return place
    value = item.get(job.columns.get(job.together, job.together))
    text = optional_text({"value": value}, "value")
    key = json.dumps(value, sort_keys=True) if text is None else " ".join(text.split())
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def require_columns(job: Job) -> None:
    """Raises: `DataToolsError` for a column to rename that no record has. Reads no further than to the last of them."""
    missing, seen = set(job.columns.values()), dict[str, None]()
    records = (item for _, item in scan_records(job.source) if not isinstance(item, Unreadable)) if missing else ()
    for record in records:
        missing -= set(record)
        if not missing:
            return
        if len(seen) < MOST_NAMES:
            seen |= dict.fromkeys(record)
    for ours, theirs in job.columns.items():
        if theirs in missing and seen:
            names = ", ".join(list(seen)[:20])
            raise DataToolsError(
                f"--column {ours}={theirs}: no record has a column '{theirs}'. Columns: {names}.{closest(theirs, seen)}"
            )


def _renamed(item: Record | Unreadable, columns: Mapping[str, str]) -> Record | Unreadable:
    """The record with `columns` (ours -> theirs) renamed, if it has an id that is one, or none."""
    if isinstance(item, Unreadable):
        return item
    if columns:
        taken = set(columns.values())
        kept = {name: value for name, value in item.items() if name not in taken and name not in columns}
        item = kept | {ours: item[theirs] for ours, theirs in columns.items() if theirs in item}
    id = item.get("id")
    if id is not None and (isinstance(id, bool) or not isinstance(id, str | int | float)):
        return Unreadable("bad_id", f"column 'id' must be text or a number; got {type(id).__name__}.")
    return item


# -------------------------------------------------------------------------------------------------------- writing


class _Nowhere:
    """Counts like `Work`, and keeps nothing: a dry run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.read = 0
        self.done = False

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Check that the record could be written."""
        format_line(record)

    def advance(self, read: int) -> None:
        """Count."""
        self.read = read


class _Noting(_Nowhere):
    """Counts, and notes the records that cannot be read."""

    def __init__(self, file: str, missed: Sequence[Missed]) -> None:
        super().__init__()
        self._file, self._missed = file, missed

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Note a reject."""
        for notes in self._missed:
            notes.add(self._file, record["line"], record["detail"])


def _store_all(job: Job, work: "Work | _Nowhere", row: Row, outputs: Iterable[Output]) -> None:
    """Store what the function gives for a record; a record that it refuses is rejected."""
    try:
        for output in outputs:
            _store(job, work, output, row)
    except RecordError as error:
        if job.strict:
            raise
        _store(job, work, Reject(error.reason, str(error)), row)


def _store(job: Job, work: "Work | _Nowhere", output: Output, row: Row | None) -> None:
    if isinstance(output, Reject):
        line = output.line if output.line is not None or row is None else row.line
        name = output.id if output.id is not None or row is None else row.id
        entry = {"line": line, "id": name, "reason": output.reason, "detail": _clean(output.detail)}
        work.write(REJECTS, entry)
        work.counts["rejected"] += 1
        work.counts[f"reason:{output.reason}"] += 1
        return
    name, record = (output.name, output.record) if isinstance(output, Part) else (ROWS, output)
    if name not in job.outputs:
        raise KeyError(f"there is no output '{name}' among {', '.join(job.outputs)}")
    work.write(name, record)
    work.counts["written"] += 1
    if isinstance(output, Part):
        work.counts[f"part:{name}"] += 1
    for column in job.tally:
        if column in record:
            work.counts[f"{column}:{record[column]}"] += 1


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")[:500]


# -------------------------------------------------------------------------------------------------------- one run


def _run(job: Job, produce: Callable[["Work | _Nowhere"], None]) -> Summary:
    require_source(job)
    refuse_folders(*job.outputs.values(), job.rejects, job.manifest)
    require_columns(job)
    if job.dry_run:
        nowhere = _Nowhere()
        produce(nowhere)
        return Summary(_grouped(nowhere.counts), [], "dry run")
    plan = Plan(
        job.command,
        {**job.options, "columns": dict(job.columns), "out": job.out.name, "strict": job.strict},
        job.seed,
        str(job.shard),
        [FileNote.of(path) for path in (job.source, *job.also)],
    )
    finished = _finished(job, plan)
    if finished is not None:
        return finished
    _refuse_existing(job, plan)
    with working(job.out, plan.key) as work:
        resumed = work.read > 0
        if not work.done:
            produce(work)
            work.counts.update({f"unanswered:{reason}": count for reason, count in job.unanswered.items()})
            work.note(done=True)
        summary = _finish(job, plan, work)
        state = INCOMPLETE if "unanswered" in summary.counts else "resumed" if resumed else "done"
        return Summary(summary.counts, summary.outputs, state)


def _finished(job: Job, plan: Plan) -> Summary | None:
    """The summary of an earlier run with the same plan whose output is still there, unchanged, and all there can be."""
    found = made(job.manifest, plan.key)
    if found is None or "unanswered" in found["counts"]:
        return None
    outputs = [str(job.out.with_name(note["path"])) for note in found["outputs"]]
    return Summary(found["counts"], outputs, "already complete")


def _refuse_existing(job: Job, plan: Plan) -> None:
    if not job.overwrite and not begun(job.out, plan.key):
        refuse_foreign(job.manifest, plan.key, list(job.outputs.values()))
        if job.rejects.exists() and not job.manifest.exists():
            raise DataToolsError(f"{job.rejects}: exists and was not made by this command. --overwrite replaces it.")


def _finish(job: Job, plan: Plan, work: Work) -> Summary:
    """Give the finished files their names: rejects, outputs, and last the manifest, which says that all is there."""
    spools = {name: work.path(name) for name in (*job.outputs, REJECTS)}
    counts = _grouped(work.counts)
    rejects = spools.pop(REJECTS)
    if not rejects.stat().st_size:
        rejects.unlink()
        job.rejects.unlink(missing_ok=True)
    files = {name: _final(job, spool) for name, spool in spools.items()}
    notes = [FileNote.of(files[name], path.name) for name, path in job.outputs.items()]
    if rejects.exists():
        os.replace(rejects, job.rejects)
    for name, path in job.outputs.items():
        os.replace(files[name], path)
    content = manifest(plan, notes, counts)
    write_manifest(job.manifest, content)
    work.remove()
    return Summary(counts, [str(path) for path in job.outputs.values()], "done")


def _final(job: Job, spool: Path) -> Path:
    """The spool in the form that the output's name asks for."""
    if job.out.suffix != ".parquet":
        return spool
    from data_tools.parquet import parquet_from_lines

    table = spool.with_name(f"{spool.name}.parquet")
    parquet_from_lines(spool, table)
    return table


def _grouped(counts: Counter[str]) -> dict[str, Any]:
    """Counts as they stand in a manifest: `reason:x` and the like become tables, each sorted by size."""
    plain: dict[str, Any] = {name: counts.get(name, 0) for name in ("read", "written", "rejected")}
    tables: dict[str, dict[str, int]] = {}
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        table, colon, value = name.partition(":")
        if colon:
            tables.setdefault(table, {})[value] = count
        else:
            plain.setdefault(name, count)
    return plain | dict(sorted(tables.items()))


__all__ = [
    "INCOMPLETE",
    "RESERVED",
    "Job",
    "Output",
    "Part",
    "Record",
    "RecordFunction",
    "Reject",
    "Row",
    "StreamFunction",
    "Summary",
    "require_columns",
    "require_source",
    "run_records",
    "run_stream",
    "scan",
]
