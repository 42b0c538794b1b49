"""What every command that writes must stand: a kill at any point, shards, hostile records."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data_tools import work
from data_tools.cli import main
from data_tools.records import read_records, write_records

COMMANDS = {
    "convert": [],
    "filter": ["--rule", "empty", "--rule", "identical", "--rule", "near_identical"],
    "dedupe": ["--near", "0.8"],
    "pair": ["--method", "irpo"],
    "negatives": ["--by", "similarity"],
}
BY_RECORD = ["convert", "filter"]


def records() -> Iterator[dict[str, Any]]:
    rng = random.Random(0)
    for number in range(300):
        texts = [" ".join(rng.choices(["red", "green", "blue", "seven"], k=rng.randint(0, 9))) for _ in "ab"]
        pair = {"chosen": texts[0], "rejected": texts[1], "responses": texts, "rewards": [1.0, 0.0]}
        yield {"id": f"r{number}", "prompt": f"question {number % 250}", **pair}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_records(tmp_path / "in.jsonl", records())
    return tmp_path / "in.jsonl"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("out*")}


class Killed(BaseException):
    """Stands for a signal: nothing catches it."""


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("after", [1, 60, 140])
def test_a_killed_run_ends_as_if_nothing_had_happened(
    source: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: int
) -> None:
    arguments = [name, str(source), "--out", str(source.with_name("out.jsonl")), "--json", *COMMANDS[name]]
    assert main(arguments) == 0
    whole = contents(source.parent)
    assert len(whole["out.jsonl"]) > 1000
    for file in source.parent.glob("out*"):
        file.unlink()
    monkeypatch.setattr(work, "EVERY_RECORDS", 20)
    write, written = work.Work.write, 0

    def killing(self: work.Work, spool: str, record: Any) -> None:
        nonlocal written
        written += 1
        if written > after:
            raise Killed
        write(self, spool, record)

    with monkeypatch.context() as patch:
        patch.setattr(work.Work, "write", killing)
        with pytest.raises(Killed):
            main(arguments)
    assert not contents(source.parent)
    assert main(arguments) == 0
    assert contents(source.parent) == whole


@pytest.mark.parametrize("name", BY_RECORD)
def test_shards_add_up_to_the_whole(source: Path, name: str) -> None:
    out = source.with_name("out.jsonl")
    rows = []
    for shard in ("1/1", "1/3", "2/3", "3/3"):
        arguments = [name, str(source), "--out", str(out), "--overwrite", "--json", *COMMANDS[name]]
        assert main([*arguments, "--shard", shard]) == 0
        rows.append({row["id"]: row for row in read_records(out)})
    assert rows[0] == {**rows[1], **rows[2], **rows[3]}
    assert len(rows[0]) == sum(map(len, rows[1:]))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dry_run_counts_and_writes_nothing(source: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    arguments = [name, str(source), "--out", str(source.with_name("out.jsonl")), "--json", *COMMANDS[name]]
    assert main([*arguments, "--dry-run"]) == 0
    dry = json.loads(capsys.readouterr().out)
    assert sorted(source.parent.iterdir()) == [source]
    assert main(arguments) == 0
    wet = json.loads(capsys.readouterr().out)
    assert {**dry, "state": "", "outputs": []} == {**wet, "state": "", "outputs": []}


HOSTILE: list[Any] = [
    {},
    {"prompt": None, "chosen": None, "rejected": None},
    {"prompt": [], "chosen": [], "rejected": []},
    {"prompt": {"a": 1}, "chosen": 1.5, "rejected": True},
    {"prompt": "p", "chosen": [[]], "rejected": [None, {}]},
    {"prompt": "p", "chosen": [{"role": "assistant"}], "rejected": [{"role": 3, "content": {"x": []}}]},
    {"prompt": "p", "completion": [1], "label": []},
    {"prompt": "p", "responses": [None, 3, {}], "labels": [None, 1, 2], "rewards": "x"},
    {"prompt": "p", "responses": ["9**9**9", "\\boxed{9!!}"], "answer": "9**9**9**9"},
    {"prompt": "p", "responses": ["a"], "answer": {"x": 1}, "score": []},
    {"conversations": {"from": 1}},
    {"conversations": [None, [], {"from": [], "value": {}}]},
    {"conversations": [{"from": "human", "value": "x"}], "chosen": [], "rejected": {}},
    {"instruction": {"x": 1}, "output": [[], {}]},
    {"instruction": "x", "completions": [{"response": []}, {"response": "a", "annotations": [], "score": "1e999"}]},
    {"instruction": "x", "completions": [{"response": "a", "overall_score": "nan"}, {"response": "b", "score": True}]},
    {"prompt": "p", "completions": [[]], "labels": {}},
    {"prompt": "p", "completions": ["a"], "labels": [[]]},
    {"question": 1, "response_j": [], "response_k": {}},
    {"chosen": "\n\nHuman:", "rejected": "\n\nHuman:\n\nAssistant:"},
    {"prompt": "p", "chosen": "x" * 2_000_000, "rejected": "x" * 1_999_999 + "y", "answer": "9" * 100_000},
    {"prompt": "= " * 200_000, "chosen": "\n" * 500_000, "rejected": "[[{{<|" * 100_000},
    {"prompt": "p", "initial_reason_steps": {}, "prefix": 7, "chosen": "a", "rejected": "b", "error_kind": []},
]


@pytest.mark.parametrize("name", [*COMMANDS, "lint"])
def test_hostile_records_are_counted_and_end_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    source = tmp_path / "in.jsonl"
    write_records(source, HOSTILE)
    with source.open("ab") as file:
        file.write(b'{"prompt": "\\ud800"}\n\xff\xfe\n{"a": "\\u0000"}\n' + b'{"a": ' + b"[" * 50_000 + b"\n")
    out = [] if name == "lint" else ["--out", str(tmp_path / "out.jsonl")]
    nothing_usable = name in ("pair", "negatives")
    assert main([name, str(source), *out, "--json", *COMMANDS.get(name, [])]) == int(nothing_usable)
    report = json.loads(capsys.readouterr().out)
    if name == "lint":
        assert report["rows"] == len(HOSTILE)
        assert report["findings"]["unreadable"]["count"] >= 15
        return
    assert report["read"] == len(HOSTILE) + 4
    broken = {"lone_surrogate", "not_utf8", "nul_character", "too_deep"}
    assert broken <= set(report["reason"])
    if name in BY_RECORD:
        assert report["written"] + report["rejected"] == report["read"]
