from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import Field

from data_tools import command
from data_tools.annotations import blanked_annotations, without_annotations
from data_tools.cli import main
from data_tools.command import Options, RunInfo, record_command
from data_tools.records import read_records, write_records
from data_tools.run import Output, RecordFunction, Row
from data_tools.sample import Reservoir
from tests.data_tools.solutions import PROBLEMS

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    rows = [{"id": p.name, "prompt": p.prompt, "solution": p.solution, "answer": p.answer} for p in PROBLEMS]
    write_records(path, rows)
    return path


def test_inject_writes_pairs_with_their_provenance(source: Path, capsys: Captured) -> None:
    out = source.with_name("pairs.jsonl")
    assert main(["inject", str(source), "--out", str(out), "--mode", "suffix", "--seed", "3", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    rows = list(read_records(out))
    assert summary["written"] == len(rows) >= 6
    assert sum(summary["error_kind"].values()) == len(rows)
    for row in rows:
        assert (row["injector"], row["seed"], row["pair_kind"], row["verified"]) == ("rule", 3, "suffix", "answer")
        assert row["id"] == f"{row['source_id']}#suffix-0"


def test_messages_are_read_and_prompts_stay_as_they_are(source: Path, capsys: Captured) -> None:
    prompt = [{"role": "user", "content": PROBLEMS[0].prompt}]
    completion = [{"role": "assistant", "content": PROBLEMS[0].solution}]
    write_records(source, [{"prompt": prompt, "completion": completion, "answer": 132}])
    out = source.with_name("pairs.jsonl")
    assert main(["inject", str(source), "--out", str(out)]) == 0
    (row,) = read_records(out)
    assert row["prompt"] == prompt
    assert "1 rows from 1 records, 0 rejected" in capsys.readouterr().out


def test_columns_may_have_other_names(source: Path) -> None:
    write_records(source, [{"question": PROBLEMS[0].prompt, "worked": PROBLEMS[0].solution}])
    out = source.with_name("pairs.jsonl")
    arguments = ["--column", "prompt=question", "--column", "solution=worked"]
    assert main(["inject", str(source), "--out", str(out), *arguments]) == 0
    assert len(list(read_records(out))) == 1


def test_programs_get_a_wrong_version_that_fails_a_test(source: Path) -> None:
    program = (
        "Here it is:\n```python\ndef least(xs):\n    best = xs[0]\n    for x in xs:\n        if x < best:\n"
        "            best = x\n    return best\n```\n"
    )
    tests = ["assert least([3, 1, 2]) == 1", "assert least([5]) == 5"]
    write_records(source, [{"prompt": "p", "solution": program, "tests": tests}])
    out = source.with_name("pairs.jsonl")
    assert main(["inject", str(source), "--out", str(out), "--mode", "full", "--domain", "code"]) == 0
    (row,) = read_records(out)
    assert row["chosen"] == program
    assert row["verified"] == "tests"
    names: dict[str, object] = {}
    exec(row["rejected"].split("```python\n")[1].split("```")[0], names)
    with pytest.raises(AssertionError):
        exec("\n".join(tests), names)


def test_what_is_on_can_be_switched_off(source: Path, capsys: Captured) -> None:
    """Without the check on looks, negative results appear where there were none."""
    arguments = ["inject", str(source), "--out", str(source.with_name("out.jsonl")), "--kind", "operand_swap", "--json"]
    main([*arguments, "--dry-run"])
    usual = json.loads(capsys.readouterr().out)["written"]
    assert main([*arguments, "--no-plausible", "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] > usual


def test_label_finds_the_first_false_equation(source: Path) -> None:
    wrong = PROBLEMS[0].solution.replace("96 - 30 = 66", "96 - 30 = 65")
    rows = [
        {"id": "a", "solution": PROBLEMS[0].solution},
        {"id": "b", "solution": wrong},
        {
            "id": "c",
            "initial_reason_steps": wrong[: wrong.index(" He gives")],
            "chosen": " x",
            "rejected": " 96 - 30 = 65.",
        },
        {"id": "d", "chosen": "a", "rejected": "1 + 1 = 3", "first_error_step": 7},
        {"id": "e", "prompt": "p"},
    ]
    write_records(source, rows)
    out = source.with_name("labelled.jsonl")
    assert main(["label", str(source), "--out", str(out), "--json"]) == 0
    found = {row["id"]: row for row in read_records(out)}
    assert {name: row["first_error_step"] for name, row in found.items()} == {"a": None, "b": 2, "c": 1, "d": 7}
    assert found["b"]["false_equation"] == "96 - 30 = 65"
    assert found["a"]["equations_checked"] == 3
    assert [wrong[a:b][:7] for a, b in found["b"]["solution_steps"]] == ["Step 1:", "Step 2:", "Step 3:"]
    assert found["c"]["rejected_steps"] == [[0, 14]]
    assert main(["label", str(source), "--out", str(out), "--keep", "found", "--replace", "--overwrite"]) == 0
    assert [(row["id"], row["first_error_step"]) for row in read_records(out)] == [("b", 2), ("c", 1), ("d", 1)]


ANNOTATED = (
    "Step 1: Natalia sold 48 / 2 = <<48/2=24>>24 clips in May.\n"
    "Step 2: Natalia sold 48 + 24 = <<48+24=72>>72 clips altogether.\n"
    "#### 72"
)


@pytest.mark.parametrize("mode", ["step", "suffix", "full"])
def test_pairs_have_no_calculator_annotations(source: Path, capsys: Captured, mode: str) -> None:
    """A seed may edit any number; none of the edits may lie in an annotation alone."""
    write_records(source, [{"id": str(n), "prompt": "p", "solution": ANNOTATED, "answer": "72"} for n in range(60)])
    out = source.with_name("out.jsonl")
    assert main(["inject", str(source), "--out", str(out), "--mode", mode, "--json"]) == 0
    rows = list(read_records(out))
    assert len(rows) > 20
    plain = ANNOTATED.replace("<<48/2=24>>", "").replace("<<48+24=72>>", "")
    for row in rows:
        assert row["chosen"] != row["rejected"]
        assert "<<" not in row["initial_reason_steps"] + row["chosen"] + row["rejected"]
        assert plain.startswith(row["initial_reason_steps"] + row["chosen"])
        assert row["annotations_removed"] == 2
    assert json.loads(capsys.readouterr().out)["annotations_removed"] == {"2": len(rows)}


def test_only_calculations_are_annotations() -> None:
    assert without_annotations("<<SYS>> a << 1 >> 2=<<1+1=2>>2 <<3>>") == ("<<SYS>> a  2=2 ", 3)
    assert blanked_annotations("a <<1+1=2>>2") == "a          2"


def test_label_reads_past_annotations(source: Path) -> None:
    write_records(source, [{"solution": ANNOTATED.replace(">>72", ">>71")}, {"solution": ANNOTATED}])
    out = source.with_name("out.jsonl")
    assert main(["label", str(source), "--out", str(out)]) == 0
    wrong, right = read_records(out)
    assert (wrong["first_error_step"], wrong["false_equation"]) == (2, "48 + 24 = 71")
    assert (right["first_error_step"], right["equations_checked"]) == (None, 2)
    first, end = right["solution_steps"][0]
    assert right["solution"][first:end] == ANNOTATED.splitlines()[0]


def test_split_keeps_problems_together_whatever_else_is_there(source: Path) -> None:
    rows = [{"prompt": f"p{n % 60}", "n": n} for n in range(240)]
    write_records(source, rows)
    arguments = ["--part", "train=0.7", "--part", "dev=0.3", "--seed", "1"]
    assert main(["split", str(source), "--out", str(source.with_name("a.jsonl")), *arguments]) == 0
    first = {
        part: {r["prompt"] for r in read_records(source.with_name(f"a.{part}.jsonl"))} for part in ("train", "dev")
    }
    assert not first["train"] & first["dev"]
    assert 30 <= len(first["train"]) <= 54
    write_records(source, rows[::-3])
    assert main(["split", str(source), "--out", str(source.with_name("b.jsonl")), *arguments]) == 0
    for part, prompts in first.items():
        assert {row["prompt"] for row in read_records(source.with_name(f"b.{part}.jsonl"))} <= prompts


def test_the_manifest_of_another_split_is_kept(source: Path, capsys: Captured) -> None:
    out, manifest = source.with_name("a.jsonl"), source.with_name("a.jsonl.manifest.json")
    first = ["split", str(source), "--out", str(out), "--part", "train=0.5", "--part", "dev=0.5"]
    second = ["split", str(source), "--out", str(out), "--part", "left=0.5", "--part", "right=0.5"]
    assert main(first) == 0
    before = manifest.read_bytes()
    assert main(second) == 2
    assert "a.jsonl.manifest.json: is the manifest of another run, which made a.train.jsonl." in capsys.readouterr().err
    assert manifest.read_bytes() == before
    assert not source.with_name("a.left.jsonl").exists()
    assert main(first) == 0
    assert main([*second, "--overwrite"]) == 0
    for name in ("left", "right"):
        source.with_name(f"a.{name}.jsonl").unlink()
    for name in ("train", "dev"):
        source.with_name(f"a.{name}.jsonl").unlink()
    assert main(first) == 0
    for part in ("train", "dev"):
        source.with_name(f"a.{part}.jsonl").unlink()
    manifest.write_text("[1]")
    assert main(first) == 2
    assert "exists and is no manifest" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--json"]])
def test_a_run_that_uses_nothing_has_failed(source: Path, capsys: Captured, more: list[str]) -> None:
    write_records(source, [{"prompt": "p"}, {"prompt": "q"}, {"prompt": "q", "solution": "no numbers"}])
    for _ in "ab":
        assert main(["inject", str(source), "--out", str(source.with_name("out.jsonl")), *more]) == 1
        captured = capsys.readouterr()
        said = "the commonest reason of 3 rejects is 'missing_column' (2 times), from 3 records."
        assert f"error: no rows were made: {said}" in captured.err
        if more == ["--json"]:
            assert json.loads(captured.out)["rejected"] == 3
    write_records(source, [])
    assert main(["inject", str(source), "--out", str(source.with_name("other.jsonl"))]) == 0


@pytest.mark.parametrize("name", ["inject", "label", "split"])
def test_an_id_that_came_before_is_rejected_where_ids_are_made_of_it(source: Path, capsys: Captured, name: str) -> None:
    """Two pairs of one id would be told apart by nobody; commands that hand rows on leave ids to `lint`."""
    records = list(read_records(source))
    write_records(source, [*records, {**records[0], "prompt": "Another problem with the same id."}, records[1]])
    out = source.with_name("out.jsonl")
    assert main([name, str(source), "--out", str(out), "--json"]) == 0
    repeated = json.loads(capsys.readouterr().out).get("reason", {}).get("repeated_id", 0)
    if name != "inject":
        assert repeated == 0
        return
    assert repeated == 2
    rejects = [row for row in read_records(out.with_name("out.jsonl.rejects.jsonl")) if row["reason"] == "repeated_id"]
    assert rejects[0]["detail"] == f"id '{records[0]['id']}' is that of line 1 already"
    assert main(["inject", str(source), "--out", str(out), "--overwrite", "--strict"]) == 2
    assert f"id '{records[0]['id']}' is that of line 1 already" in capsys.readouterr().err


def test_ids_repeat_across_shards_too(source: Path, capsys: Captured) -> None:
    first = next(iter(read_records(source)))
    write_records(source, [first, first])
    assert main(["inject", str(source), "--out", str(source.with_name("o.jsonl")), "--shard", "2/2", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["reason"] == {"repeated_id": 1}


def test_lint_names_rows_that_share_an_id(source: Path, capsys: Captured) -> None:
    rows = [{"id": "a", "prompt": f"p{n}", "chosen": f"yes {n}", "rejected": f"no {n}"} for n in (1, 2)]
    write_records(source, [*rows, {**rows[0], "id": "b", "prompt": "p3"}])
    assert main(["lint", str(source), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]["repeated_id"]
    assert (found["count"], found["rows"]) == (1, [{"id": "a", "line": 2, "detail": "the id of line 1"}])


@pytest.mark.parametrize("name", ["lint", "stats"])
def test_a_dry_run_of_a_report_says_that_it_writes_nothing(source: Path, capsys: Captured, name: str) -> None:
    assert main([name, str(source), "--json"]) == 0
    usual = capsys.readouterr().out
    assert main([name, str(source), "--json", "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert captured.out == usual
    assert f"{name} writes no file, so --dry-run changes nothing." in captured.err


def test_shards_of_problems_make_up_the_whole(tmp_path: Path) -> None:
    def made(*options: str) -> list[dict[str, object]]:
        assert main(["problems", str(tmp_path / "p.jsonl"), "--count", "20", "--overwrite", *options]) == 0
        return list(read_records(tmp_path / "p.jsonl"))

    first, second = made("--shard", "1/2"), made("--shard", "2/2")
    assert [row for both in zip(first, second, strict=True) for row in both] == made()


def test_reports_refuse_columns_that_are_not_there(source: Path, capsys: Captured) -> None:
    assert main(["lint", str(source), "--column", "promt=prompt"]) == 2
    assert "--column promt=prompt: no column 'promt' is read." in capsys.readouterr().err
    assert main(["stats", str(source), "--column", "prompt=promt"]) == 2
    assert "no record has a column 'promt'" in capsys.readouterr().err


def test_an_output_that_is_a_folder_is_refused(source: Path, capsys: Captured) -> None:
    for name in ("a.jsonl", "b.train.jsonl", "c.jsonl.manifest.json", "d.jsonl.rejects.jsonl"):
        source.with_name(name).mkdir()
    assert main(["label", str(source), "--out", str(source.with_name("a.jsonl")), "--overwrite"]) == 2
    assert "a.jsonl: is a folder, so no file of that name can be written." in capsys.readouterr().err
    for name in "bcd":
        assert main(["split", str(source), "--out", str(source.with_name(f"{name}.jsonl"))]) == 2
        assert "is a folder" in capsys.readouterr().err
    assert main(["problems", str(source.with_name("a.jsonl")), "--count", "1"]) == 2
    assert "a.jsonl: is a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["split", "--part", "a=0.5"], "shares add up to 1; got a=0.5"),
        (["split", "--part", "rejects=.9", "--part", "b=.1"], "'rejects' is a name that the run itself uses"),
        (["split", "--part", "lock=1"], "'lock' is a name that the run itself uses"),
        (["split", "--part", "a=x"], "--part must be NAME=SHARE"),
        (["split", "--part", "../a=1"], "must be a plain name"),
        (["inject", "--kind", "typo"], "there is no kind 'typo' of errors"),
        (["inject", "--kind-weight", "digit_change"], "--kind-weight must be KIND=NUMBER"),
        (["inject", "--kind-weight", "digit_change=-1"], "must be 0 or above"),
        (["inject", "--min-similarity", "2"], "--min-similarity: Input should be less than or equal to 1; got 2.0"),
        (["inject", "--domain", "code"], "give --mode full"),
        *(
            (["inject", "--domain", "code", "--mode", "full", *option.split()], f"{option.split()[0]} is for solutions")
            for option in ("--kind unit_error", "--kind-weight unit_error=2", "--splitter line", "--prose")
        ),
        *(
            (
                ["inject", "--domain", "code", "--mode", "full", option, value],
                f"{option} is for solutions with equations",
            )
            for option, value in (("--min-similarity", "0.5"), ("--max-length-ratio", "2"), ("--step-weights", "late"))
        ),
        (["inject", "--domain", "code", "--mode", "full", "--no-plausible"], "--plausible is for solutions"),
        (["inject", "--shard", "3/2"], "--shard must be i/n"),
        (["inject", "--column", "solutoin=solution"], "OURS comes first: --column solution=solutoin."),
        (["inject", "--column", "solutoin=worked"], "no column 'solutoin' is read. Columns: id, prompt, solution"),
        (["inject", "--column", "solutoin=worked"], "Did you mean 'solution'?"),
        (
            ["inject", "--column", "prompt=promt"],
            "no record has a column 'promt'. Columns: id, prompt, solution",
        ),
        (["filter", "--column", "prompt=promt"], "Did you mean 'prompt'?"),
        (["inject", "--column", "prompt"], "--column must be OURS=THEIRS"),
        (["filter", "--column", "promt=prompt"], "no column 'promt' is read"),
        (["label", "--column", "solutoin=solution"], "OURS comes first: --column solution=solutoin."),
        (["label", "--column", "solutoin=worked"], "Did you mean 'solution'?"),
        (["dedupe", "--column", "respons=r"], "Did you mean 'responses'?"),
        (["split", "--by", "problem", "--column", "problm=p"], "Did you mean 'problem'?"),
        (["convert", "--column", "instrucion=i"], "Did you mean 'instruction'?"),
        (
            ["convert", "--shape", "hh", "--column", "instruction=i"],
            "no column 'instruction' is read. Columns: id, chosen",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    source: Path, capsys: Captured, arguments: list[str], message: str
) -> None:
    name, *options = arguments
    assert main([name, str(source), "--out", str(source.with_name("out.jsonl")), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not source.with_name("out.jsonl").exists()


def test_stats_counts_what_is_there(source: Path, capsys: Captured) -> None:
    write_records(
        source, [{"chosen": "ab", "rejected": "abc", "error_kind": "x"}] * 3 + [{"chosen": "a", "rejected": ""}]
    )
    assert main(["stats", str(source), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == 4
    assert found["columns"] == {"chosen": 4, "rejected": 4, "error_kind": 3}
    assert found["error_kind"] == {"x": 3}
    assert found["longer side"] == {"rejected": 3, "chosen": 1}
    assert found["characters"]["chosen"] == {"count": 4, "mean": 1.75, "min": 1, "p5": 1, "p50": 2, "p95": 2, "max": 2}
    assert main(["stats", str(source)]) == 0
    assert "longer side" in capsys.readouterr().out


def test_a_sample_of_everything_is_exact_and_a_small_one_near() -> None:
    exact, small = Reservoir(1000, "a"), Reservoir(200, "a")
    for value in range(1000):
        exact.add(value)
        small.add(value)
    assert exact.summary() == {"count": 1000, "mean": 499.5, "min": 0, "p5": 50, "p50": 500, "p95": 950, "max": 999}
    assert small.summary()["mean"] == 499.5
    assert abs(small.quantile(0.5) - 500) < 120


def test_a_new_command_is_one_function(source: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(command.app, "registered_commands", list(command.app.registered_commands))

    class ShortenOptions(Options):
        limit: int = Field(100, ge=1, description="longest solution that stays")

    @record_command(ShortenOptions)
    def shorten(options: ShortenOptions, run: RunInfo) -> RecordFunction:
        """Leave long solutions out."""

        def rows(row: Row) -> Iterator[Output]:
            if len(row.record["solution"]) <= options.limit:
                yield row.record

        return rows

    out = source.with_name("out.jsonl")
    assert main(["shorten", str(source), "--out", str(out), "--limit", "110", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["read"] == len(PROBLEMS)
    assert main(["shorten", "--help"]) == 0
    assert "longest solution that stays" in capsys.readouterr().out
    assert main(["shorten", str(source), "--out", str(out), "--limit", "0"]) == 2
    assert "--limit: Input should be greater than or equal to 1; got 0" in capsys.readouterr().err
