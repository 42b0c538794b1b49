from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from data_tools import work
from data_tools.cli import main
from data_tools.errors import DataToolsError, RecordError
from data_tools.records import read_records, record_id, write_records
from data_tools.run import Job, Output, Part, Reject, Row, run_records, run_stream
from data_tools.shards import Shard
from tests.data_tools.solutions import PROBLEMS


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    write_records(path, [{"id": f"r{n}", "n": n} for n in range(50)])
    return path


def job(source: Path, **options: Any) -> Job:
    return Job("test", source, source.with_name("out.jsonl"), quiet=True, **options)


def even(row: Row) -> Iterator[Output]:
    """Doubles even numbers, rejects multiples of seven, gives nothing for other odd ones."""
    n = row.record["n"]
    if n % 7 == 0:
        raise RecordError(f"{row.where}: seven", reason="seven")
    if n % 2 == 0:
        yield {"id": row.id, "double": 2 * n, "kind": "even"}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "in.jsonl"}


def test_rows_rejects_and_manifest_add_up(source: Path) -> None:
    summary = run_records(job(source, tally=("kind",), seed=5, options={"x": 1}), even)
    rows = list(read_records(source.with_name("out.jsonl")))
    rejects = list(read_records(source.with_name("out.jsonl.rejects.jsonl")))
    manifest = json.loads(source.with_name("out.jsonl.manifest.json").read_text())
    assert [row["double"] for row in rows] == [2 * n for n in range(50) if n % 2 == 0 and n % 7]
    assert [entry["id"] for entry in rejects] == [f"r{n}" for n in range(0, 50, 7)]
    assert rejects[1] == {"line": 8, "id": "r7", "reason": "seven", "detail": f"{source}:8: seven"}
    assert manifest["counts"] == summary.counts
    assert summary.counts == {"read": 50, "written": 21, "rejected": 8, "kind": {"even": 21}, "reason": {"seven": 8}}
    assert manifest["command"] == "test"
    assert manifest["seed"] == 5
    assert manifest["options"]["x"] == 1
    assert manifest["inputs"][0]["bytes"] == source.stat().st_size
    assert len(manifest["outputs"][0]["sha256"]) == 64
    assert "prefopt-train" in manifest["versions"]
    assert sorted(contents(source.parent)) == ["out.jsonl", "out.jsonl.manifest.json", "out.jsonl.rejects.jsonl"]


def test_the_same_run_again_changes_nothing_and_says_so(source: Path) -> None:
    assert run_records(job(source), even).state == "done"
    before = contents(source.parent)
    assert run_records(job(source), even).state == "already complete"
    assert contents(source.parent) == before


def test_an_output_of_another_run_is_kept_unless_overwriting(source: Path) -> None:
    run_records(job(source), even)
    before = contents(source.parent)
    with pytest.raises(DataToolsError, match=r"out\.jsonl: exists and was not made by this command. --overwrite"):
        run_records(job(source, seed=1), even)
    assert contents(source.parent) == before
    assert run_records(job(source, seed=1, overwrite=True), even).state == "done"


def test_an_output_that_was_changed_by_hand_is_not_taken_for_complete(source: Path) -> None:
    run_records(job(source), even)
    source.with_name("out.jsonl").write_text("{}\n")
    with pytest.raises(DataToolsError, match="exists and was changed since this command made it"):
        run_records(job(source), even)


def test_old_rejects_go_when_there_are_none_any_more(source: Path) -> None:
    run_records(job(source), even)
    run_records(job(source, overwrite=True, seed=3), lambda row: [row.record])
    assert not source.with_name("out.jsonl.rejects.jsonl").exists()


def test_shards_have_every_record_once(source: Path) -> None:
    found: list[str] = []
    for index in (1, 2, 3):
        out = source.with_name(f"part{index}.jsonl")
        run_records(Job("test", source, out, shard=Shard(index, 3), quiet=True), lambda row: [row.record])
        found += [row["id"] for row in read_records(out)]
    assert sorted(found) == sorted(f"r{n}" for n in range(50))


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/", "a/b", "1/0", "-1/2"])
def test_shards_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(DataToolsError, match="--shard must be i/n with i from 1 to n"):
        Shard.parse(text)


def test_a_dry_run_counts_and_writes_nothing(source: Path) -> None:
    summary = run_records(job(source, dry_run=True), even)
    assert summary.counts["written"] == 21
    assert contents(source.parent) == {}


def test_strict_stops_at_the_first_record_that_cannot_be_used(source: Path) -> None:
    with pytest.raises(RecordError, match=r"in\.jsonl:1: seven"):
        run_records(job(source, strict=True), even)
    assert not source.with_name("out.jsonl").exists()


def test_columns_are_renamed(source: Path) -> None:
    run_records(job(source, columns={"number": "n"}), lambda row: [row.record])
    assert next(read_records(source.with_name("out.jsonl"))) == {"id": "r0", "number": 0}


def test_parts_become_files_of_their_own(source: Path) -> None:
    names = ("odd", "even")
    run_records(job(source, parts=names), lambda row: [Part(names[row.record["n"] % 2 == 0], row.record)])
    assert len(list(read_records(source.with_name("out.odd.jsonl")))) == 25
    assert len(list(read_records(source.with_name("out.even.jsonl")))) == 25


def test_what_is_no_json_is_refused_as_an_output(source: Path) -> None:
    run_records(job(source), lambda row: [{"x": float("nan")}] if row.record["n"] == 3 else [row.record])
    (entry,) = read_records(source.with_name("out.jsonl.rejects.jsonl"))
    assert entry["reason"] == "not_writable"


def test_an_output_that_is_an_input_is_refused(source: Path) -> None:
    with pytest.raises(DataToolsError, match="is read, so it cannot be written"):
        run_records(Job("test", source, source, quiet=True), even)
    with pytest.raises(DataToolsError, match=r"must end in \.jsonl or \.parquet"):
        run_records(Job("test", source, source.with_name("out.txt"), quiet=True), even)
    with pytest.raises(DataToolsError, match="there is no such file"):
        run_records(Job("test", source.with_name("none.jsonl"), source, quiet=True), even)


def test_a_given_id_stays_and_a_missing_one_follows_from_the_content() -> None:
    assert record_id({"id": "a"}) == "a"
    assert record_id({"id": 7}) == "7"
    made = record_id({"prompt": "p", "x": 1})
    assert made == record_id({"x": 1, "prompt": "p", "id": None})
    assert made.startswith("r-")
    assert made != record_id({"prompt": "q", "x": 1})


def test_parquet_goes_in_and_out(source: Path) -> None:
    table = source.with_name("out.parquet")
    run_records(Job("test", source, table, quiet=True), even)
    back = source.with_name("back.jsonl")
    run_records(Job("test", table, back, quiet=True), lambda row: [row.record])
    assert [row["double"] for row in read_records(back)] == [2 * n for n in range(50) if n % 2 == 0 and n % 7]


def test_columns_without_a_common_type_do_not_fit_into_parquet(source: Path) -> None:
    def mixed(row: Row) -> list[Output]:
        return [{"x": "a" if row.record["n"] else {"b": 1}}]

    with pytest.raises(DataToolsError, match=r"do not fit into one table .* Write \.jsonl instead"):
        run_records(Job("test", source, source.with_name("out.parquet"), quiet=True), mixed)


# ------------------------------------------------------------------------------------------- cut off and resumed


class Killed(BaseException):
    """Stands for a kill: nothing that runs afterwards is meant to notice."""


@pytest.mark.parametrize("stop", [1, 2, 9, 10, 25, 48])
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_run_that_is_cut_off_goes_on_to_the_same_bytes(
    source: Path, monkeypatch: pytest.MonkeyPatch, stop: int, ending: str
) -> None:
    monkeypatch.setattr(work, "EVERY_RECORDS", 4)
    asked: list[int] = []

    def breaks(row: Row) -> Iterator[Output]:
        asked.append(row.record["n"])
        yield from even(row)
        if row.record["n"] == stop and len(asked) <= stop + 1:
            raise Killed

    whole, broken = source.parent / "whole" / f"out.{ending}", source.parent / "broken" / f"out.{ending}"
    run_records(Job("test", source, whole, quiet=True), even)
    with pytest.raises(Killed):
        run_records(Job("test", source, broken, quiet=True), breaks)
    assert not broken.exists()
    again = run_records(Job("test", source, broken, quiet=True), breaks)
    assert again.state == ("resumed" if stop >= 4 else "done")
    assert contents(broken.parent) == contents(whole.parent)
    assert len(asked) <= 50 + stop % 4 + 5


def test_a_cut_off_run_is_not_continued_with_other_options(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "EVERY_RECORDS", 1)

    def breaks(row: Row) -> Iterator[Output]:
        if row.record["n"] == 20:
            raise Killed
        yield {"old": True}

    with pytest.raises(Killed):
        run_records(job(source), breaks)
    run_records(job(source, seed=2), lambda row: [{"old": False}])
    assert {row["old"] for row in read_records(source.with_name("out.jsonl"))} == {False}


def test_stream_commands_start_anew(source: Path) -> None:
    calls = []

    def function(rows: Iterator[Row]) -> Iterable[Output]:
        calls.append(1)
        for row in rows:
            if row.record["n"] == 30 and len(calls) == 1:
                raise Killed
            yield row.record if row.record["n"] % 2 else Reject("even", line=row.line, id=row.id)

    with pytest.raises(Killed):
        run_stream(job(source), function)
    summary = run_stream(job(source), function)
    assert summary.counts["written"] == summary.counts["rejected"] == 25


def test_two_runs_do_not_write_one_file(source: Path) -> None:
    def nested(row: Row) -> Iterator[Output]:
        with pytest.raises(DataToolsError, match="another run is writing this file"):
            run_records(job(source), even)
        yield row.record

    run_records(job(source), nested)


def test_a_killed_process_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    """A real kill of the real command, at whatever point it has reached; then the same command again."""
    source = tmp_path / "in.jsonl"
    write_records(
        source,
        (
            {
                "id": f"{problem.name}-{n}",
                "prompt": problem.prompt,
                "solution": problem.solution,
                "answer": problem.answer,
            }
            for n in range(400)
            for problem in PROBLEMS
        ),
    )
    whole, broken = tmp_path / "whole" / "out.jsonl", tmp_path / "broken" / "out.jsonl"
    assert main(["inject", str(source), "--out", str(whole), "--json"]) == 0
    command = [sys.executable, "-m", "data_tools", "inject", str(source), "--out", str(broken), "--json"]
    journal = broken.parent / ".out.jsonl.work" / "journal.json"
    killed = 0
    for _ in range(40):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2], env=os.environ)
        before = journal.stat().st_mtime_ns if journal.exists() else 0
        while process.poll() is None and (not journal.exists() or journal.stat().st_mtime_ns == before):
            time.sleep(0.01)
        if process.poll() is None and killed < 2:
            process.send_signal(signal.SIGKILL)
            killed += 1
        if process.wait() == 0:
            break
    assert killed
    assert {name: data for name, data in contents(broken.parent).items() if name != "lock"} == contents(whole.parent)


def test_a_reject_log_of_nobody_is_kept_and_no_companion_of_the_output_is_read(source: Path) -> None:
    log = source.with_name("out.jsonl.rejects.jsonl")
    log.write_bytes(source.read_bytes())
    with pytest.raises(DataToolsError, match=r"rejects\.jsonl: exists and was not made by this command. --overwrite"):
        run_records(job(source), even)
    for overwrite in (False, True):
        with pytest.raises(DataToolsError, match=r"rejects\.jsonl: is read, so it cannot be written as well"):
            run_records(job(log, overwrite=overwrite), even)
    assert log.read_bytes() == source.read_bytes()
    assert run_records(job(source, overwrite=True), even).state == "done"
