"""`prefopt diagnose` from the command line: files, filters, resuming, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from transformers import AutoTokenizer

from prefopt.cli import main
from prefopt.data import DataOptions, Source
from prefopt.demo import demo_model_path
from prefopt.diagnostics import keep_lowest, parts, table
from prefopt.diagnostics.filters import spearman
from prefopt.diagnostics.records import read_pairs
from prefopt.errors import RunError
from prefopt.train.model import load_model
from tests.diagnostics.independent import scores_of
from tests.train.folder import model_folder, pairs, recipe

DATA = Path(__file__).parents[2] / "recipes" / "data" / "tiny-math"
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _caches_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(model_folder(tmp_path / "model"))


def some(name: str, folder: Path, count: int) -> Path:
    """The first records of a file of the demonstration data."""
    lines = (DATA / name).read_bytes().splitlines(keepends=True)[:count]
    (folder / name).write_bytes(b"".join(lines))
    return folder / name


def diagnose(*words: object) -> int:
    return main(["diagnose", *map(str, words)])


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()]


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """Files by name, without the report: it shows the name of its folder."""
    assert (folder / "report.html").stat().st_size > 0
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.name != "report.html"}


def test_the_demonstration_model_on_its_pairs_equals_one_pass_per_response(tmp_path: Path) -> None:
    data = some("pairs.jsonl", tmp_path, 25)
    assert diagnose("--model", "demo:tiny-math", "--data", data, "--out", tmp_path / "out") == 0
    found = records(tmp_path / "out")
    given = [json.loads(line) for line in data.read_text().splitlines()]
    assert [record["id"] for record in found] == [row["id"] for row in given]
    model, words = load_model("demo:tiny-math").eval(), AutoTokenizer.from_pretrained(demo_model_path("demo:tiny-math"))
    for record, row in zip(found, given, strict=True):
        prompt = words(row["prompt"]).input_ids
        whole = [words(row["prompt"] + row[side]).input_ids for side in ("chosen", "rejected")]
        responses = [[*ids[len(prompt) :], words.eos_token_id] for ids in whole]
        masks = [[True] * len(ids) for ids in responses]
        expected = scores_of(model, {"prompt_ids": prompt, "responses": responses, "masks": masks})
        for name, value in expected.items():
            assert record[name] == pytest.approx(value, rel=1e-4, abs=1e-4), name
        assert (record["chosen_tokens"], record["rejected_tokens"]) == tuple(map(len, responses))
        assert record["chosen"] == row["chosen"]
        assert record["rejected"] == row["rejected"]


def test_both_tables_hold_the_same_and_the_summary_follows_from_them(tmp_path: Path) -> None:
    data = some("pairs.jsonl", tmp_path, 40)
    assert diagnose("--model", "demo:tiny-math", "--data", data, "--out", tmp_path / "out") == 0
    parquet = pq.read_table(tmp_path / "out" / "pairs.parquet")
    assert parquet.to_pylist() == records(tmp_path / "out")
    assert parquet.column_names == list(table.columns(moved=False))
    found, told = records(tmp_path / "out"), summary(tmp_path / "out")
    assert (told["pairs"], told["rows"], told["diagnosis"]) == (40, 40, "scores")
    for name, values in told["scores"].items():
        column = sorted(record[name] for record in found)
        assert values["mean"] == pytest.approx(sum(column) / 40)
        assert (values["quantiles"]["0"], values["quantiles"]["100"]) == (column[0], column[-1])
        assert values["quantiles"]["50"] == pytest.approx((column[19] + column[20]) / 2)
    gaps = [record["length_gap"] for record in found]
    assert told["spearman_with_length_gap"]["ches"] == spearman([record["ches"] for record in found], gaps)
    assert "filter" not in told
    assert not (tmp_path / "out" / "kept.jsonl").exists(), "nothing is filtered unless asked"


def test_several_rejected_responses_give_a_record_each(model: str, tmp_path: Path) -> None:
    rows = [{"id": "a", "prompt": "1 + 1 =", "chosen": " 2", "rejected": [" 3", " 4", " 33"]}]
    rows += [{"id": "b", "prompt": "1 + 1 =", "chosen": " 2", "rejected": " 5"}]
    (tmp_path / "many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert diagnose("--model", model, "--data", tmp_path / "many.jsonl", "--out", tmp_path / "out") == 0
    found = [(record["id"], record["rejected_index"], record["rejected"]) for record in records(tmp_path / "out")]
    assert found == [("a", 0, " 3"), ("a", 1, " 4"), ("a", 2, " 33"), ("b", 0, " 5")]
    assert (summary(tmp_path / "out")["rows"], summary(tmp_path / "out")["pairs"]) == (2, 4)


def test_what_cannot_be_scored_is_counted_by_reason(model: str, tmp_path: Path) -> None:
    rows = [
        {"id": "good", "prompt": "a", "chosen": "b", "rejected": "c"},
        {"id": "same", "prompt": "a", "chosen": "b", "rejected": "b"},
        {"id": "none", "prompt": "a", "chosen": "", "rejected": "c"},
        {"id": "long", "prompt": "a", "chosen": "b" * 300, "rejected": "c" * 300},
    ]
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--model", model, "--data", tmp_path / "odd.jsonl", "--max-length", 200)
    assert diagnose(*words, "--out", tmp_path / "out", "--keep-lowest", 1) == 0
    assert summary(tmp_path / "out")["data"]["lost"] == {"identical": 1, "empty_answer": 1, "too_long": 1}
    assert [record["id"] for record in records(tmp_path / "out")] == ["good"]
    removed = [json.loads(line) for line in (tmp_path / "out" / "removed.jsonl").read_text().splitlines()]
    assert {line["id"]: line["reason"] for line in removed} == {
        "same": "identical",
        "none": "empty_answer",
        "long": "too_long",
    }
    assert diagnose(*words, "--truncate", "response", "--out", tmp_path / "cut", "--keep-lowest", 1) == 0
    flags = {record["id"]: record["flag"] for record in records(tmp_path / "cut")}
    assert flags == {"good": "", "long": "truncated"}
    assert summary(tmp_path / "cut")["flags"] == {"truncated": 1}
    kept = (tmp_path / "cut" / "kept.jsonl").read_text()
    assert kept == json.dumps(rows[0]) + "\n", "a flagged row is not kept, whatever its score"


def test_the_kept_records_are_the_lowest_as_they_were_written(model: str, tmp_path: Path) -> None:
    lines = []
    for number, line in enumerate(pairs(tmp_path / "pairs.jsonl", 12).read_bytes().splitlines()):
        lines.append(line.replace(b", ", b",   ") if number % 2 else line.replace(b'"id"', b'"note": "\xc3\xa9", "id"'))
    (tmp_path / "pairs.jsonl").write_bytes(b"\n\n".join(lines))  # empty lines between, and none at the end
    words = ("--model", model, "--data", tmp_path / "pairs.jsonl", "--out")
    assert diagnose(*words, tmp_path / "out", "--keep-lowest", 0.25) == 0
    scores = [record["ln_ches"] for record in records(tmp_path / "out")]
    lowest = sorted(sorted(range(12), key=scores.__getitem__)[:3])
    assert (tmp_path / "out" / "kept.jsonl").read_bytes() == b"".join(lines[number] + b"\n" for number in lowest)
    told = summary(tmp_path / "out")["filter"]
    assert told == {
        "keep_lowest": 0.25,
        "by": "ln_ches",
        "kept": 3,
        "removed": 9,
        "threshold": max(scores[number] for number in lowest),
        "reasons": {"not among the lowest 0.25": 9},
    }
    removed = [json.loads(line) for line in (tmp_path / "out" / "removed.jsonl").read_text().splitlines()]
    assert [line["score"] for line in removed] == [scores[n] for n in range(12) if n not in lowest]


def test_records_that_are_no_lines_are_kept_as_json(model: str, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in pairs(tmp_path / "p.jsonl", 6).read_text().splitlines()]
    (tmp_path / "list.json").write_text(json.dumps(rows, indent=1))
    words = ("--model", model, "--data", tmp_path / "list.json", "--out", tmp_path / "out", "--keep-lowest", 0.5)
    assert diagnose(*words, "--keep-lowest-by", "similarity") == 0
    kept = [json.loads(line) for line in (tmp_path / "out" / "kept.jsonl").read_text().splitlines()]
    distances = [-record["edit_distance"] for record in records(tmp_path / "out")]
    import torch

    assert kept == [rows[k] for k in keep_lowest(torch.tensor(distances), 0.5).tolist()]


@pytest.mark.parametrize("tokens", [64, 4096])
def test_a_killed_diagnosis_goes_on_to_the_same_bytes(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, tokens: int
) -> None:
    data = pairs(tmp_path / "pairs.jsonl", 30)
    words = ("--model", model, "--data", data, "--batch-tokens", tokens, "--keep-lowest", 0.2, "--out")
    monkeypatch.setattr("prefopt.diagnostics.items.WINDOW", 8)
    monkeypatch.setattr(parts.windows, "__defaults__", (8,))
    assert diagnose(*words, tmp_path / "whole") == 0
    written = [0]
    write = parts.write_text

    def dies(path: Path, text: str) -> None:
        written[0] += 1
        if written[0] > 3:
            raise RunError("killed")
        write(path, text)

    monkeypatch.setattr(parts, "write_text", dies)
    assert diagnose(*words, tmp_path / "out") == 1
    assert not (tmp_path / "out" / "summary.json").exists()
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out" / parts.FOLDER).glob("*.jsonl")}
    assert len(before) == 3
    computed: list[str] = []

    def counts(path: Path, text: str) -> None:
        computed.append(path.name)
        write(path, text)

    monkeypatch.setattr(parts, "write_text", counts)
    capsys.readouterr()
    assert diagnose(*words, tmp_path / "out") == 0
    assert "continuing: 3 parts are there already" in capsys.readouterr().err
    assert not set(computed) & set(before)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_an_unfinished_diagnosis_of_something_else_is_not_continued(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    data = pairs(tmp_path / "pairs.jsonl", 10)
    write = parts.write_text
    monkeypatch.setattr(parts, "write_text", lambda path, text: (_ for _ in ()).throw(RunError("killed")))
    assert diagnose("--model", model, "--data", data, "--out", tmp_path / "out") == 1
    monkeypatch.setattr(parts, "write_text", write)
    other = model_folder(tmp_path / "other", seed=1)
    capsys.readouterr()
    assert diagnose("--model", other, "--data", data, "--out", tmp_path / "out") == 0
    assert "starting afresh: the unfinished diagnosis there differs in: models" in capsys.readouterr().err
    assert diagnose("--model", other, "--data", data, "--out", tmp_path / "clean") == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "clean")


def test_a_finished_diagnosis_and_foreign_folders_are_left_alone(model: str, tmp_path: Path, capsys: Captured) -> None:
    data = pairs(tmp_path / "pairs.jsonl", 5)
    words = ("--model", model, "--data", data, "--out", tmp_path / "out")
    assert diagnose(*words) == 0
    before = contents(tmp_path / "out")
    assert diagnose(*words) == 2
    assert "holds a finished diagnosis. --overwrite replaces it." in capsys.readouterr().err
    assert contents(tmp_path / "out") == before
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert diagnose(*words, "--overwrite") == 0
    assert contents(tmp_path / "out") == before | {"notes.txt": b"mine"}
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "summary.json").write_text("[]")
    assert diagnose(*words[:-1], foreign, "--overwrite") == 2
    assert "is no diagnosis, so it is left alone" in capsys.readouterr().err
    assert diagnose(*words[:-1], data) == 2
    assert "is a file, not a folder" in capsys.readouterr().err


def test_a_recipe_says_model_data_and_truncation(tmp_path: Path) -> None:
    recipe(tmp_path, data={"max_length": 12, "truncate": "response"})
    assert diagnose(tmp_path / "recipe.json", "--out", tmp_path / "out") == 0
    told = summary(tmp_path / "out")
    assert told["models"]["start"]["name_or_path"] == str(tmp_path / "model")
    assert told["settings"]["data"]["max_length"] == 12
    assert {record["flag"] for record in records(tmp_path / "out")} == {"", "truncated"}
    assert diagnose(tmp_path / "recipe.json", "data.max_length=64", "--out", tmp_path / "wide") == 0
    assert summary(tmp_path / "wide")["flags"] == {}


@pytest.mark.parametrize("adapter", [None, {"r": 4}], ids=["full", "lora"])
def test_a_run_is_compared_with_its_start(adapter: dict[str, Any] | None, tmp_path: Path, capsys: Captured) -> None:
    recipe(tmp_path, **({"model": {"adapter": adapter}} if adapter else {}))
    assert main(["train", str(tmp_path / "recipe.json")]) == 0
    assert diagnose(tmp_path / "run", "--out", tmp_path / "out") == 0
    assert "movement" in capsys.readouterr().out
    told, found = summary(tmp_path / "out"), records(tmp_path / "out")
    assert told["diagnosis"] == "movement"
    assert pq.read_table(tmp_path / "out" / "pairs.parquet").column_names == list(table.columns(moved=True))
    moved = told["movement"]
    deltas = [record["chosen_delta"] for record in found]
    assert any(delta != 0 for delta in deltas)
    assert moved["chosen"]["per_response"] == pytest.approx(sum(deltas) / len(deltas))
    tokens = sum(record["chosen_tokens"] for record in found)
    assert moved["chosen"]["per_token"] == pytest.approx(sum(deltas) / tokens)
    each = [record["chosen_delta_per_token"] for record in found]
    assert moved["chosen"]["mean_per_token"] == pytest.approx(sum(each) / len(each))
    assert moved["chosen_dropped"] == sum(delta < 0 for delta in deltas) / len(deltas)
    for name, share in moved["quadrants"].items():
        assert share == sum(record["quadrant"] == name for record in found) / len(found)
    assert [pair["chosen_delta"] for pair in moved["moved_most"]] == sorted(deltas)[:10]
    for name in ("chosen", "rejected", "other"):
        for when in ("start", "now"):
            column = [record[f"branch_{name}_{when}"] for record in found]
            assert moved["branch"][name][when] == pytest.approx(sum(column) / len(column))
    assert sum(token["pairs"] for token in moved["branch"]["top_gainers"]) <= len(found)
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert metrics, "the run was a real one"


def test_an_unfinished_diagnosis_of_a_run_with_a_new_adapter_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    recipe(tmp_path, model={"adapter": {"r": 4}})
    assert main(["train", str(tmp_path / "recipe.json")]) == 0
    monkeypatch.setattr("prefopt.diagnostics.items.WINDOW", 4)
    monkeypatch.setattr(parts.windows, "__defaults__", (4,))
    written = []
    write = parts.write_text

    def dies(path: Path, text: str) -> None:
        written.append(path)
        if len(written) > 2:
            raise RunError("killed")
        write(path, text)

    monkeypatch.setattr(parts, "write_text", dies)
    assert diagnose(tmp_path / "run", "--out", tmp_path / "out") == 1
    monkeypatch.setattr(parts, "write_text", write)
    capsys.readouterr()
    assert diagnose(tmp_path / "run", "--out", tmp_path / "out") == 0
    assert "continuing: 2 parts are there already" in capsys.readouterr().err


def test_the_model_of_a_run_by_name_reads_rows_as_the_run_did(tmp_path: Path, capsys: Captured) -> None:
    recipe(tmp_path, data={"template": "always"})
    assert main(["train", str(tmp_path / "recipe.json")]) == 0
    assert diagnose(tmp_path / "run", "--out", tmp_path / "one") == 0
    words = ("--start", tmp_path / "model", "--data", tmp_path / "pairs.jsonl", "--out")
    capsys.readouterr()
    assert diagnose("--model", tmp_path / "run", *words, tmp_path / "two") == 0
    assert "rows are read as the run" in capsys.readouterr().err
    assert summary(tmp_path / "two")["movement"]["chosen"] == summary(tmp_path / "one")["movement"]["chosen"]
    assert diagnose("--model", tmp_path / "model", *words, tmp_path / "bare") == 0
    said = capsys.readouterr().err
    assert "rows of text are read without it" in said
    assert "hold the same weights: nothing can have moved" in said
    still = summary(tmp_path / "bare")["movement"]["branch"]
    assert (still["gainer_is_third"], still["top_gainers"]) == (0, [])
    assert "No chosen response moved" in (tmp_path / "bare" / "report.html").read_text()


def test_an_adapter_is_no_model(model: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    data = pairs(tmp_path / "pairs.jsonl", 3)
    assert diagnose("--model", tmp_path / "adapter", "--start", model, "--data", data, "--out", tmp_path / "out") == 2
    assert "adapter holds an adapter, not a model. `prefopt diagnose" in capsys.readouterr().err


def test_two_models_by_name(model: str, tmp_path: Path) -> None:
    data, other = pairs(tmp_path / "pairs.jsonl", 6), model_folder(tmp_path / "other", seed=1)
    assert diagnose("--model", other, "--start", model, "--data", data, "--out", tmp_path / "there") == 0
    assert diagnose("--model", model, "--start", other, "--data", data, "--out", tmp_path / "back") == 0
    assert diagnose("--model", model, "--data", data, "--out", tmp_path / "scores") == 0
    there, back, scores = (records(tmp_path / name) for name in ("there", "back", "scores"))
    for one, opposite, start in zip(there, back, scores, strict=True):
        assert one["chosen_delta"] == pytest.approx(-opposite["chosen_delta"], rel=1e-4)
        assert one["ln_ches"] == pytest.approx(start["ln_ches"], rel=1e-5), "scores are those of the start"
        assert one["branch_chosen"] != one["branch_rejected"]


def test_columns_json_and_nothing_else_on_stdout(model: str, tmp_path: Path, capsys: Captured) -> None:
    row = {"id": "a", "prompt": "1 + 1 =", "good": " 2", "bad": " 3"}
    (tmp_path / "named.jsonl").write_text(json.dumps(row) + "\n")
    words = ("--model", model, "--data", tmp_path / "named.jsonl", "--columns", "chosen=good", "--columns")
    assert diagnose(*words, "rejected=bad", "--out", tmp_path / "out", "--json") == 0
    assert json.loads(capsys.readouterr().out) == summary(tmp_path / "out")


REFUSED: list[tuple[list[str], str]] = [
    ([], "say what to diagnose: a recipe, a run directory, or --model together with --data."),
    (["--model", "demo:tiny-math"], "--model together with --data"),
    (["recipe.json", "--model", "demo:tiny-math"], "recipe.json names its model itself"),
    (["recipe.json", "--dtype", "bfloat16"], "model.dtype=... changes it"),
    (["recipe.json", "--columns", "chosen=a"], "--columns belongs to --data"),
    (["recipe.json", "--split", "train"], "--split belongs to --data"),
    (["recipe.json", "--keep-lowest", "0"], "a share of the records, above 0 and at most 1; got 0"),
    (["recipe.json", "--keep-lowest-by", "ln_chess"], "Did you mean 'ln_ches'?"),
    (["recipe.json", "--keep-lowest-by", "ches"], "says by what --keep-lowest chooses, and that is not given"),
    (["recipe.json", "--template", "often"], "--template is one of auto, always, never; got 'often'"),
    (["recipe.json", "loss.bta=1"], "Did you mean 'beta'"),
    (["empty"], "is no run directory of prefopt: it has no recipe.yaml"),
    (["--model", "demo:tiny-math", "--data", "pairs.jsonl", "--columns", "chosen"], "is not of the form ours=theirs"),
    (["--model", "demo:tiny-math", "--data", "pairs.jsonl", "--columns", "chosn=a"], "Did you mean 'chosen'?"),
    (["--model", "demo:tiny-math", "--data", "pairs.jsonl", "--columns", "chosen=a"], "no record has the column 'a'"),
    (["--model", "demo:tiny-math", "--data", "pairs.jsonl", "--truncate", "end"], "data.truncate must be one of"),
    (["--model", "demo:tiny-math", "--data", "pairs.jsonl", "--dtype", "int8"], "--dtype is one of float32"),
    (["--model", "demo:tiny", "--data", "pairs.jsonl"], "Did you mean 'demo:tiny-math'?"),
    (["--model", "demo:tiny-math", "--data", "groups.jsonl"], "its records are groups of scored responses"),
    (["--model", "demo:tiny-math", "--data", "unpaired.jsonl"], "its records are single responses with labels"),
    (["--model", "demo:tiny-math", "--data", "nowhere.jsonl"], "nowhere.jsonl: does not exist"),
]


@pytest.mark.parametrize(("words", "says"), REFUSED, ids=lambda value: None if isinstance(value, str) else "-")
def test_bad_input_is_refused_with_code_2(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("groups.jsonl", "unpaired.jsonl"):
        some(name, tmp_path, 3)
    assert main(["diagnose", *words, "--out", "out"]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_row_finds_its_record_past_records_that_gave_none(model: str, tmp_path: Path) -> None:
    rows = [{"prompt": "a", "chosen": "b", "rejected": "b" if n % 3 == 0 else str(n)} for n in range(9)]
    for name, part in (("one.jsonl", rows[:5]), ("two.jsonl", rows[5:])):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in part))
    words = AutoTokenizer.from_pretrained(model)
    sources = [Source(str(tmp_path / name)) for name in ("one.jsonl", "two.jsonl")]
    found = read_pairs(sources, words, DataOptions(), cache=tmp_path / "rows")
    assert list(found.numbers) == [1, 2, 4, 5, 7, 8]
    texts = [json.loads(text) for text in found.texts()]
    assert texts == rows
    for row, number in zip(found.table, found.numbers, strict=True):
        assert words.decode(row["responses"][1], skip_special_tokens=True) == rows[number]["rejected"]
