"""How a command is declared: its options once, as a pydantic model, and a function that turns records into rows.

    class ShortenOptions(Options):
        limit: int = Field(100, ge=1, description="longest text that stays, in characters")

    @record_command(ShortenOptions)
    def shorten(options: ShortenOptions, run: RunInfo) -> RecordFunction:
        \"\"\"Leave long texts out.\"\"\"
        def rows(row: Row) -> Iterator[Output]:
            text = text_field(row.record, "text", row.where)
            yield row.record if len(text) <= options.limit else Reject("too_long")
        return rows

in `data_tools/commands/shorten.py` is all that `prefopt data shorten IN --out OUT --limit 50` needs. The function may
raise `RecordError`; the record is then rejected under the error's reason. It is called once per run, the inner function
once per record. It must not remember records from one call to the next: a resumed run would not know them. Where rows
depend on each other use `stream_command`, whose function gets all records, and `report_command` where there are no rows
but a table of results.
"""

import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel, ConfigDict, ValidationError

from data_tools.errors import NOT_GENERATED, DataToolsError, closest
from data_tools.reading import Missed
from data_tools.run import (
    INCOMPLETE,
    Job,
    RecordFunction,
    Row,
    StreamFunction,
    Summary,
    require_columns,
    require_source,
    run_records,
    run_stream,
    scan,
)
from data_tools.shards import Shard


class Options(BaseModel):
    """The options of one command, checked when they are given. Field `min_length` is option `--min-length`."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class RunInfo:
    """What a command may know of the run besides its options.

    `strict` and `dry_run` matter to commands over all records together, which reject records themselves, and to those
    that ask a model.
    """

    seed: int
    source: Path
    out: Path | None = None
    strict: bool = False
    dry_run: bool = False
    missed: Missed = field(default_factory=Missed)
    """For reports: the records of all files that could not be read, complete when all records have been seen."""
    unanswered: Counter[str] = field(default_factory=Counter)
    """For commands that ask a model: how many requests had no answer that they may have another time, by reason."""


O = TypeVar("O", bound=Options)  # noqa: E741
Maker = Callable[[O, RunInfo], RecordFunction]
StreamMaker = Callable[[O, RunInfo], StreamFunction]
Report = Mapping[str, Any]
ReportMaker = Callable[[O, RunInfo], Callable[[Iterator[Row]], Report]]

Source = Annotated[Path, typer.Argument(metavar="IN", help="JSON lines or Parquet to read", show_default=False)]
Out = Annotated[Path, typer.Option("--out", help="file to write, .jsonl or .parquet", show_default=False)]
Seed = Annotated[int, typer.Option("--seed", help="the same seed gives the same rows")]
ShardText = Annotated[str, typer.Option("--shard", metavar="i/n", help="only every n-th record, from the i-th on")]
Column = Annotated[
    list[str] | None,
    typer.Option(
        "--column", metavar="OURS=THEIRS", help="a column under another name; may be repeated", show_default=False
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="stop at the first record that cannot be used")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="do everything but write")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace an output of another run")]
AsJson = Annotated[bool, typer.Option("--json", help="report as one JSON object, and nothing else on stdout")]

app = typer.Typer(
    name="data_tools",
    help="Make and check preference data. `prefopt data COMMAND` runs the same commands.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def record_command(
    options: type[O],
    *,
    tally: Sequence[str] = (),
    also: Callable[[O], Sequence[Path]] | None = None,
    parts: Callable[[O], Sequence[str]] | None = None,
    reads: Callable[[O], Sequence[str]] | None = None,
    distinct: bool = False,
) -> Callable[[Maker[O]], Maker[O]]:
    """Register a command that makes rows out of single records.

    `tally` are columns whose values are counted in summary and manifest, `also` names further files that it reads,
    `parts` the output files if there are several, `reads` the columns that it reads and `--column` may name. With
    `distinct` a record whose id came before is rejected.
    """

    def register(maker: Maker[O]) -> Maker[O]:
        def run(chosen: O, info: RunInfo, job: Job) -> Summary:
            return run_records(replace(job, distinct=distinct), maker(chosen, info))

        _add(maker.__name__, maker.__doc__, options, _writer(maker.__name__, options, run, tally, also, parts, reads))
        return maker

    return register


def stream_command(
    options: type[O],
    *,
    tally: Sequence[str] = (),
    also: Callable[[O], Sequence[Path]] | None = None,
    parts: Callable[[O], Sequence[str]] | None = None,
    reads: Callable[[O], Sequence[str]] | None = None,
    together: str | None = None,
    distinct: bool = False,
) -> Callable[[StreamMaker[O]], StreamMaker[O]]:
    """Register a command that makes rows out of all records together.

    With `together` records with the same value in that column belong to the same shard; the rest is as for
    `record_command`.
    """

    def register(maker: StreamMaker[O]) -> StreamMaker[O]:
        def run(chosen: O, info: RunInfo, job: Job) -> Summary:
            return run_stream(replace(job, together=together, distinct=distinct), maker(chosen, info))

        _add(maker.__name__, maker.__doc__, options, _writer(maker.__name__, options, run, tally, also, parts, reads))
        return maker

    return register


def report_command(
    options: type[O],
    *,
    also: Callable[[O], Sequence[Path]] | None = None,
    text: Callable[[Report], Iterable[str]] | None = None,
    failed: Callable[[Report], bool] | None = None,
    reads: Callable[[O], Sequence[str]] | None = None,
) -> Callable[[ReportMaker[O]], ReportMaker[O]]:
    """Register a command that reads records and prints a table of results.

    `also` names further files that it reads, `text` gives the report's lines, `failed` says whether to exit with 1,
    `reads` the columns that it reads.
    """

    def register(maker: ReportMaker[O]) -> ReportMaker[O]:
        def call(
            source: Path, seed: int, shard: str, column: list[str] | None, dry_run: bool, as_json: bool, **given: Any
        ) -> None:
            chosen = _checked(options, given)
            if dry_run:
                typer.echo(f"{maker.__name__} writes no file, so --dry-run changes nothing.", err=True)
            job = Job(
                maker.__name__,
                source,
                Path("none.jsonl"),
                shard=Shard.parse(shard),
                columns=_columns(column, reads(chosen) if reads else None),
                also=also(chosen) if also else (),
                quiet=as_json,
            )
            require_source(job)
            require_columns(job)
            missed = Missed()
            result = maker(chosen, RunInfo(seed, source, missed=missed))(scan(job, missed))
            lines = (text or _lines)(result)
            typer.echo(json.dumps(result, ensure_ascii=False) if as_json else "\n".join(lines))
            if failed and failed(result):
                raise typer.Exit(1)

        common = {
            "source": (Source, ...),
            "seed": (Seed, 0),
            "shard": (ShardText, "1/1"),
            "column": (Column, None),
            "dry_run": (Annotated[bool, typer.Option("--dry-run", help="nothing is written in any case")], False),
            "as_json": (AsJson, False),
        }
        _add(maker.__name__, maker.__doc__, options, _typed(call, common, options))
        return maker

    return register


# ------------------------------------------------------------------------------------------------ command lines


def _writer(
    name: str,
    options: type[O],
    run: Callable[[O, RunInfo, Job], Summary],
    tally: Sequence[str],
    also: Callable[[O], Sequence[Path]] | None,
    parts: Callable[[O], Sequence[str]] | None,
    reads: Callable[[O], Sequence[str]] | None,
) -> Callable[..., None]:
    def call(
        source: Path,
        out: Path,
        seed: int,
        shard: str,
        column: list[str] | None,
        strict: bool,
        dry_run: bool,
        overwrite: bool,
        as_json: bool,
        **given: Any,
    ) -> None:
        chosen = _checked(options, given)
        info = RunInfo(seed, source, out, strict, dry_run)
        job = Job(
            name.replace("_", "-"),
            source,
            out,
            options=chosen.model_dump(mode="json"),
            seed=seed,
            shard=Shard.parse(shard),
            columns=_columns(column, reads(chosen) if reads else None),
            also=also(chosen) if also else (),
            parts=parts(chosen) if parts else (),
            tally=tally,
            strict=strict,
            dry_run=dry_run,
            overwrite=overwrite,
            quiet=as_json,
            unanswered=info.unanswered,
        )
        summary = run(chosen, info, job)
        report(job, summary, as_json=as_json)
        unused = _unused(summary, dry_run=dry_run)
        if unused:
            typer.echo(f"error: {unused}", err=True)
            raise typer.Exit(1)

    common = {
        "source": (Source, ...),
        "out": (Out, ...),
        "seed": (Seed, 0),
        "shard": (ShardText, "1/1"),
        "column": (Column, None),
        "strict": (Strict, False),
        "dry_run": (DryRun, False),
        "overwrite": (Overwrite, False),
        "as_json": (AsJson, False),
    }
    return _typed(call, common, options)


def report(job: Job, summary: Summary, *, as_json: bool) -> None:
    """Say what a run did: one JSON object and nothing else, or a few lines."""
    if as_json:
        content = {"command": job.command, "state": summary.state, "outputs": summary.outputs, **summary.counts}
        typer.echo(json.dumps(content, ensure_ascii=False))
        return
    counts = summary.counts
    names = ", ".join(summary.outputs) or f"{job.out} (dry run)"
    typer.echo(f"{names}: {counts['written']} rows from {counts['read']} records, {counts['rejected']} rejected.")
    if summary.state in ("resumed", "already complete"):
        typer.echo("An earlier run was continued." if summary.state == "resumed" else "It was complete already.")
    tables = {name: table for name, table in counts.items() if isinstance(table, dict)}
    for line in _lines(tables):
        typer.echo(line)
    if summary.state == INCOMPLETE:
        typer.echo(f"{sum(counts['unanswered'].values())} requests had no answer. The same command asks them again.")
    if counts["rejected"] and not job.dry_run:
        typer.echo(f"Rejected records are listed in {job.rejects}.")


def _unused(summary: Summary, *, dry_run: bool) -> str | None:
    """What to say of a run that could use nothing; None for any other."""
    counts = summary.counts
    if summary.written or not counts["rejected"]:
        return None
    reason, count = max(counts["reason"].items(), key=lambda item: item[1])
    if dry_run and reason == NOT_GENERATED:
        return None
    return (
        f"no rows were made: the commonest reason of {counts['rejected']} rejects is '{reason}' ({count} times), from "
        f"{counts['read']} records."
    )


def _lines(table: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """A nested table as lines of text."""
    width = max((len(str(name)) for name, value in table.items() if not isinstance(value, Mapping)), default=0)
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}"
            yield from _lines(value, indent + "  ")
        else:
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            yield f"{indent}{str(name).ljust(width)}  {shown}"


def _add(name: str, text: str | None, options: type[Options], call: Callable[..., None]) -> None:
    if not text:
        raise TypeError(f"command '{name}' needs a docstring: it is its help")
    app.command(name.replace("_", "-"), help=inspect.cleandoc(text))(call)


def _typed(
    call: Callable[..., None], common: Mapping[str, tuple[Any, Any]], options: type[Options]
) -> Callable[..., None]:
    """The function with the signature that the command line is made of: common parameters, then the options' fields."""
    parameters = {name: _parameter(name, kind, default) for name, (kind, default) in common.items()}
    for name, declared in options.model_fields.items():
        if name in parameters:
            raise TypeError(f"option '{name}' is one that every command has")
        required = declared.is_required()
        default = [] if declared.default_factory is not None else declared.default
        flag = name.replace("_", "-")
        switch = f"--{flag}/--no-{flag}" if default is True else f"--{flag}"
        option = typer.Option(switch, help=declared.description, show_default=not required)
        kind = Annotated[declared.annotation, option]  # type: ignore[name-defined]
        parameters[name] = _parameter(name, kind, ... if required else default)

    def wrapped(**given: Any) -> None:
        call(**given)

    wrapped.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    wrapped.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return wrapped


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    empty = inspect.Parameter.empty
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=empty if default is ... else default, annotation=kind
    )


def _checked(options: type[O], given: Mapping[str, Any]) -> O:
    try:
        return options(**given)
    except ValidationError as error:
        problems = (
            f"--{'.'.join(map(str, e['loc'])).replace('_', '-')}: {e['msg']}; got {e['input']!r}."
            for e in error.errors()
        )
        raise DataToolsError(" ".join(problems)) from None


def _columns(given: list[str] | None, reads: Sequence[str] | None) -> dict[str, str]:
    columns = {}
    for pair in given or ():
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs):
            raise DataToolsError(f"--column must be OURS=THEIRS, for instance solution=completion; got '{pair}'.")
        if reads is not None and ours not in (known := ("id", *reads)):
            turned = f" OURS comes first: --column {theirs}={ours}." if theirs in known else closest(ours, known)
            raise DataToolsError(f"--column {pair}: no column '{ours}' is read. Columns: {', '.join(known)}.{turned}")
        columns[ours] = theirs
    return columns
