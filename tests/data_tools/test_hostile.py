"""Input that is broken or meant to break things: each a clear error or a counted reject."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_tools import reading
from data_tools.cli import main
from data_tools.errors import DataToolsError
from data_tools.records import read_numbered, read_records, write_records
from data_tools.work import Work
from tests.data_tools.solutions import PROBLEMS

GOOD = json.dumps(
    {"id": "good", "prompt": PROBLEMS[0].prompt, "solution": PROBLEMS[0].solution, "answer": "132"}
).encode()

LINES = {
    "not_json": [
        *(b'{"a": 1', b"null true", b'{"a": NaN}', b'{"a": "raw \x00"}'),
        *(b'{"n": ' + number + b"}" for number in (b"9" * 5000, b"9" * 400, b"1e999", b"-1E+400", b"9" * 400 + b".5")),
    ],
    "not_utf8": ["{'a'}".encode("utf-16"), b'{"a": "\xff\xfe"}', '{"a": "é"}'.encode("latin-1")],
    "not_an_object": [b"[1]", b"null", b'"text"', b"3"],
    "too_deep": [
        b'{"a": ' + b"[" * 100_000,
        b'{"a": ' + b'{"b":' * 100_000,
        *(b'{"a": ' * depth + b'"\\u0000"' + b"}" * depth for depth in (101, 400, 900, 985)),
        *(b'{"a": ' + b"[" * depth + b"]" * depth + b"}" for depth in (100, 480, 950)),
    ],
    "nul_character": [b'{"a": "x\\u0000y"}', b'{"a": [{"b\\u0000": 1}]}'],
    "lone_surrogate": [b'{"a": "\\ud800"}', b'{"\\uDFFF": 1}'],
    "repeated_key": [b'{"a": 1, "a": 2}'],
}


@pytest.mark.parametrize(("reason", "line"), [(reason, line) for reason, lines in LINES.items() for line in lines])
def test_a_broken_line_is_rejected_under_its_reason(tmp_path: Path, reason: str, line: bytes) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(GOOD + b"\n" + line + b"\n" + GOOD.replace(b"good", b"fine") + b"\n")
    assert main(["inject", str(source), "--out", str(out), "--json"]) == 0
    (entry,) = read_records(tmp_path / "out.jsonl.rejects.jsonl")
    assert (entry["line"], entry["id"], entry["reason"]) == (2, None, reason)
    assert entry["detail"].endswith(".")
    assert len(list(read_records(out))) == 2


@pytest.mark.parametrize(("reason", "line"), [(reason, lines[0]) for reason, lines in LINES.items()])
def test_a_broken_line_stops_a_strict_run_with_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reason: str, line: bytes
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(GOOD + b"\n" + line + b"\n")
    assert main(["inject", str(source), "--out", str(tmp_path / "out.jsonl"), "--strict"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: {source}:2: ")
    assert "Traceback" not in message
    with pytest.raises(DataToolsError, match=r"in\.jsonl:2: "):
        list(read_numbered(source))
    assert reason


def test_escaped_pairs_of_surrogates_are_characters(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'{"a": "\\ud83d\\ude00 \\\\ud800"}\n')
    assert list(read_records(source)) == [{"a": "\U0001f600 \\ud800"}]


def test_a_line_beyond_the_limit_is_skipped_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE", 1000)
    monkeypatch.setattr(reading, "PIECE", 64)
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'{"a": 1}\n{"b": "' + b"x" * 5000 + b'"}\n{"c": 1}\n' + b"y" * 2000)
    items = list(reading.scan_records(source))
    assert [(number, getattr(item, "reason", item)) for number, item in items] == [
        (1, {"a": 1}),
        (2, "too_long"),
        (3, {"c": 1}),
        (4, "too_long"),
    ]


SOLUTIONS = {
    "one long word": "x" * 10_000_000,
    "digits": "9" * 10_000_000,
    "equals signs": "= " * 1_000_000,
    "many lines": "3 + 4 = 7\n" * 1_000_000,
}


@pytest.mark.parametrize("solution", SOLUTIONS.values(), ids=SOLUTIONS)
def test_a_line_of_ten_megabytes_is_a_counted_reject(tmp_path: Path, solution: str) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    fine = "3 + 4 = 7\n7 * 12 = 84\n84 - 20 = 64\n64 / 16 = 4"
    write_records(source, [{"prompt": "p", "solution": solution}, {"prompt": solution, "solution": fine}])
    assert main(["inject", str(source), "--out", str(out), "--json"]) == 0
    reasons = [entry["reason"] for entry in read_records(tmp_path / "out.jsonl.rejects.jsonl")]
    assert reasons[0] == "too_long"
    assert main(["label", str(source), "--out", str(tmp_path / "label.jsonl"), "--json"]) == 0
    assert main(["stats", str(source), "--json"]) == 0


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"solution": "3 + 4 = 7"}, "missing_column"),
        ({"prompt": "p"}, "missing_column"),
        ({"prompt": 3, "solution": "3 + 4 = 7"}, "no_text"),
        ({"prompt": "p", "solution": None}, "missing_column"),
        ({"prompt": "p", "solution": "  "}, "empty_text"),
        ({"prompt": [{"role": "user"}], "solution": "3 + 4 = 7"}, "no_text"),
        ({"prompt": [], "solution": "3 + 4 = 7"}, "no_text"),
        ({"prompt": "p", "solution": "Step 2: 3 + 4 = 7"}, "no_steps"),
        ({"prompt": "p", "solution": "just words"}, "no_verified_error"),
        ({"prompt": "p", "solution": "30 + 4 = 34\n#### 34", "answer": "35"}, "wrong_answer"),
    ],
)
def test_a_record_without_what_is_needed_is_rejected(tmp_path: Path, record: dict[str, object], reason: str) -> None:
    source = tmp_path / "in.jsonl"
    write_records(source, [record])
    assert main(["inject", str(source), "--out", str(tmp_path / "out.jsonl"), "--json"]) == 1
    (entry,) = read_records(tmp_path / "out.jsonl.rejects.jsonl")
    assert entry["reason"] == reason


def test_a_file_that_is_no_parquet_is_a_readable_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.parquet"
    source.write_bytes(b"PAR1 nothing")
    assert main(["stats", str(source)]) == 2
    assert "in.parquet: cannot be read as Parquet" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["step", "suffix", "full"])
def test_a_solution_of_more_steps_than_solutions_have_is_a_counted_reject(tmp_path: Path, mode: str) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    steps = {count: "\n".join(f"{n} + {n} = {2 * n}" for n in range(3, count + 3)) for count in (400, 401)}
    write_records(source, [{"prompt": "p", "solution": text} for text in steps.values()])
    assert main(["inject", str(source), "--out", str(out), "--mode", mode, "--json"]) < 2
    entries = {entry["line"]: entry["reason"] for entry in read_records(tmp_path / "out.jsonl.rejects.jsonl")}
    assert entries[2] == "too_long"
    assert entries.get(1) != "too_long"


def test_a_step_longer_than_steps_are_is_a_counted_reject(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    texts = [f"3 * 4 = 12 and {'+'.join(['1'] * count)} = {count} nuts\n#### 12" for count in (4000, 6000)]
    write_records(source, [{"prompt": "p", "solution": text} for text in texts])
    assert main(["inject", str(source), "--out", str(out), "--json"]) == 0
    (entry,) = read_records(tmp_path / "out.jsonl.rejects.jsonl")
    assert (entry["line"], entry["reason"]) == (2, "too_long")
    assert "a step has over 10,000 characters" in entry["detail"]


LONG = "a" * 300 + ".jsonl"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["inject", "{in}", "--out", "{folder}/" + LONG], 1, "aaa.jsonl: File name too long."),
        (
            ["inject", "{in}", "--out", "{folder}/a\udcff.jsonl"],
            2,
            "a\\udcff.jsonl': the name of the file is not UTF-8.",
        ),
        (["stats", "{folder}/a\udcff.jsonl"], 2, "a\\udcff.jsonl': the name of the file is not"),
        (["problems", "{folder}/a\udcff.jsonl"], 2, "a\\udcff.jsonl': the name of the file is not"),
        (["problems", "{folder}/a.txt"], 2, "a.txt: must end in .jsonl"),
        (["problems", "{folder}/a.jsonl", "--exclude", "{folder}/no.jsonl"], 2, "no.jsonl: there is no such file."),
        (["problems", "{in}", "--exclude", "{in}", "--overwrite"], 2, "is read, so it cannot be written as well."),
        (["inject", "-", "--out", "{folder}/a.jsonl"], 2, "-: is no file; it is read more than once"),
        (["inject", "/dev/null", "--out", "{folder}/a.jsonl"], 2, "/dev/null: is no file; it is read more than once"),
    ],
)
def test_names_that_name_no_file_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(GOOD + b"\n")
    (tmp_path / "a\udcff.jsonl").write_bytes(GOOD + b"\n")
    given = [argument.format(**{"in": source, "folder": tmp_path}) for argument in arguments]
    assert main(given) == code
    assert says in capsys.readouterr().err
    assert {file.name for file in tmp_path.iterdir()} == {"in.jsonl", "a\udcff.jsonl"}
    assert source.read_bytes() == GOOD + b"\n"


def test_a_full_disk_ends_a_run_that_then_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(GOOD + b"\n")
    with Path("/dev/full").open("ab", buffering=0) as full, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Work, "_spool", lambda self, name: full)
        assert main(["inject", str(source), "--out", str(out)]) == 1
    message = capsys.readouterr().err
    assert message == "error: No space left on device. What was done is kept; the same command goes on from there.\n"
    assert main(["inject", str(source), "--out", str(out)]) == 0
    assert len(list(read_records(out))) == 1
