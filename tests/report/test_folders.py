"""What folders are read as, and the sentence that a missing or damaged file gives."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from prefopt.errors import ConfigError, RunError
from prefopt.report import build_report, write_report
from prefopt.report.folders import flat, read
from tests.report import made


@pytest.fixture
def diagnosis(tmp_path: Path) -> Path:
    return made.diagnosis(tmp_path / "diagnosis", made.pairs(250))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made.run(tmp_path / "run")


def refused(folder: Path, kind: type[Exception] = RunError) -> str:
    with pytest.raises(kind) as error:
        read([folder])
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)
    return str(error.value)


def test_folders_that_are_no_evidence(tmp_path: Path) -> None:
    assert "not a folder" in refused(tmp_path / "nowhere", ConfigError)
    assert "neither a run directory (it has no run.json) nor" in refused(tmp_path, ConfigError)
    with pytest.raises(ConfigError, match="at least one"):
        read([])


def test_a_record_that_is_not_ours(run: Path) -> None:
    (run / "run.json").write_text('{"other": 1}')
    assert "not the record of a prefopt run" in refused(run, ConfigError)
    (run / "run.json").write_text('{"prefopt": ')
    assert "run.json cannot be read" in refused(run)


@pytest.mark.parametrize("content", [None, "model: [", "- a list", b"\xff\xfe"])
def test_a_damaged_recipe(run: Path, content: str | bytes | None) -> None:
    if content is None:
        (run / "recipe.yaml").unlink()
    else:
        (run / "recipe.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert "recipe.yaml" in refused(run)


def test_metrics_that_are_missing_or_damaged(run: Path) -> None:
    whole = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(whole[:40] + "\n" + whole + '{"step": 13, "lo')
    (found,) = read([run])
    assert found.run is not None
    assert len(found.run.metrics) == len(made.metrics())
    assert found.run.notes == ("2 of 16 lines of metrics.jsonl cannot be read and are left out.",)
    (run / "metrics.jsonl").write_text("nothing\n")
    assert "no line that can be read" in refused(run)
    (run / "metrics.jsonl").unlink()
    assert "metrics.jsonl cannot be read" in refused(run)


def test_a_table_that_is_missing_or_damaged(diagnosis: Path) -> None:
    table, content = diagnosis / "pairs.parquet", (diagnosis / "pairs.parquet").read_bytes()
    for damaged in (b"", content[:-100], content[: len(content) // 2]):
        table.write_bytes(damaged)
        assert "pairs.parquet cannot be read" in refused(diagnosis)
    table.unlink()
    assert "--overwrite makes it again" in refused(diagnosis)


def test_a_table_damaged_in_the_middle(diagnosis: Path) -> None:
    content = bytearray((diagnosis / "pairs.parquet").read_bytes())
    content[8:4000] = bytes(3992)
    (diagnosis / "pairs.parquet").write_bytes(content)
    assert "pairs.parquet cannot be read" in refused(diagnosis)


def test_a_table_of_another_diagnosis(diagnosis: Path) -> None:
    table = pq.read_table(diagnosis / "pairs.parquet")
    pq.write_table(table.slice(0, 100), diagnosis / "pairs.parquet")
    assert "100 pairs and summary.json speaks of 250" in refused(diagnosis)
    pq.write_table(table.drop_columns("chosen_delta"), diagnosis / "pairs.parquet")
    assert "no column 'chosen_delta'" in refused(diagnosis)


def test_a_diagnosis_of_nothing(tmp_path: Path) -> None:
    folder = made.diagnosis(tmp_path / "some", made.pairs(3, moved=False))
    pq.write_table(pq.read_table(folder / "pairs.parquet").slice(0, 0), folder / "pairs.parquet")
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"pairs": 0}))
    assert "without any pair" in refused(folder)


def test_a_summary_that_is_not_ours(diagnosis: Path) -> None:
    (diagnosis / "summary.json").write_text("[]")
    assert "not written by prefopt diagnose" in refused(diagnosis, ConfigError)


def test_a_summary_of_other_pairs(tmp_path: Path) -> None:
    one, other = (made.diagnosis(tmp_path / str(seed), made.pairs(50, seed=seed)) for seed in (0, 1))
    (one / "summary.json").write_bytes((other / "summary.json").read_bytes())
    assert "not of one diagnosis" in refused(one)


def test_movements_that_are_no_numbers(tmp_path: Path) -> None:
    lines = made.pairs(10)
    lines[3]["chosen_delta"] = float("nan")
    assert "of the movements 1 are no finite" in refused(made.diagnosis(tmp_path / "some", lines))


def test_scores_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    lines = made.pairs(10, moved=False)
    lines[3]["ln_ches"], lines[4]["ln_ches"] = float("inf"), float("nan")
    folder = made.diagnosis(tmp_path / "some", lines)
    (column,) = build_report([folder]).columns
    assert {claim.count for claim in column.findings.claims if "ln_ches" in claim.key} == {8}
    assert write_report([folder], tmp_path / "out")


@pytest.mark.parametrize("name", ["movement", "data", "models", "spearman_with_length_gap"])
def test_a_summary_with_something_else_in_place_of_a_table(diagnosis: Path, name: str) -> None:
    summary = json.loads((diagnosis / "summary.json").read_text())
    (diagnosis / "summary.json").write_text(json.dumps(summary | {name: "lost"}))
    assert f"'{name}' is not a table of values" in refused(diagnosis)


def test_lines_of_metrics_without_a_step_are_no_failure(tmp_path: Path) -> None:
    lines = [{"loss": 1.0}, {"step": None, "loss": 2.0}, {"step": "3"}, {"step": float("nan")}]
    (column,) = build_report([made.run(tmp_path / "run", lines)]).columns
    assert column.findings.verdict == "A run of 0 steps."


def test_the_diagnosis_of_a_run_joins_it(tmp_path: Path) -> None:
    trained, moved = made.diagnosed_run(tmp_path, made.pairs(20))
    other = made.diagnosis(tmp_path / "other", made.pairs(10, moved=False))
    for order in ([trained, moved, other], [moved, trained, other]):
        first, second = read(order)
        assert (first.name, second.name) == ("trained", "other")
        assert first.run is not None
        assert first.pairs is not None
        assert second.run is None
    assert [found.name for found in read([moved])] == ["moved"]


def test_folders_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    folders = [made.run(tmp_path / name / "run") for name in ("a", "b")]
    assert [found.name for found in read(folders)] == ["a/run", "b/run"]
    assert len(read([folders[0], folders[0]])) == 1


def test_rows_come_from_their_places(diagnosis: Path) -> None:
    (found,) = read([diagnosis])
    assert found.pairs is not None
    places = [249, 0, 99, 100, 7]
    assert {place: row["id"] for place, row in found.pairs.rows(places).items()} == {
        place: f"pair-{place}" for place in places
    }


def test_settings_get_dotted_names() -> None:
    assert flat({"a": {"b": 1, "c": {}}, "d": [1, 2], "e": [{"f": 3}]}) == {
        "a.b": 1,
        "a.c": {},
        "d": [1, 2],
        "e.0.f": 3,
    }


def test_a_run_that_an_alarm_ended_says_so(tmp_path: Path) -> None:
    lines = [{"step": 3, "loss": 0.6}, {"step": 4, "loss": 0.5}, {"step": 4, "alarms/chosen_below_start": 1.0}]
    folder = made.run(tmp_path / "run", lines)
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"plan": {"steps": 32}}))
    (column,) = build_report([folder]).columns
    assert column.findings.verdict == "A run that has come to step 4 of 32."
    assert column.findings.sentences[0] == "The alarm chosen_below_start rang at step 4."
