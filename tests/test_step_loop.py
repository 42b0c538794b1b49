"""recipes/studies/step_loop: its recipes load, and the loop runs from problems to accuracies."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from data_tools.records import read_records, write_records
from prefopt import load_recipe

FOLDER = Path(__file__).parents[1] / "recipes" / "studies" / "step_loop"
DATA = Path(__file__).parents[1] / "recipes" / "data" / "tiny-math"
METHODS = ("step_dpo", "scdpo", "rise")
CONTROLS = ("rise_flipped",)


@pytest.mark.parametrize("method", METHODS)
def test_its_recipes_train_the_loss_of_their_name_and_measure_on_held_out_problems(method: str) -> None:
    recipe = load_recipe(FOLDER / f"{method}.yaml", {"data.train": str(DATA / "pairs.jsonl")})
    assert [loss.name for loss in recipe.objective().losses] == [method]
    assert Path(recipe.data.eval["heldout"].path).name == "heldout.jsonl"
    assert recipe.training["eval_on_start"] is True


def test_the_control_exchanges_the_sides_of_edited_rows_and_of_no_others(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("step_loop", FOLDER / "loop.py")
    assert spec is not None
    assert spec.loader is not None
    loop = importlib.util.module_from_spec(spec)
    sys.modules["step_loop"] = loop
    spec.loader.exec_module(loop)
    row = {
        "id": "a",
        "pair_kind": "edit",
        "chosen": "x",
        "rejected": "y",
        "rejected_steps": [[0, 1]],
        "complete": False,
    }
    swapped = {"id": "a", "pair_kind": "edit", "chosen": "y", "rejected": "x", "chosen_steps": [[0, 1]]}
    assert loop.flipped(row) == {**swapped, "complete": False}
    whole = {**row, "pair_kind": "full"}
    assert loop.flipped(whole) == whole


@pytest.mark.slow
def test_the_loop_runs_from_problems_to_accuracies(tmp_path: Path) -> None:
    heldout, out = tmp_path / "heldout.jsonl", tmp_path / "out.json"
    write_records(heldout, list(read_records(DATA / "heldout.jsonl"))[:20])
    words = ["--problems", "16", "--work", str(tmp_path / "work"), "--out", str(out), f"data.eval.heldout={heldout}"]
    command = [sys.executable, str(FOLDER / "loop.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(out.read_text())
    assert [outcome["method"] for outcome in outcomes] == [*METHODS, *CONTROLS]
    for outcome in outcomes:
        assert outcome["pairs"] > 0
        assert 0 < outcome["before"] < 1
        assert outcome["before"] == outcomes[0]["before"]
        assert f"| {outcome['method']} | 0 | {outcome['pairs']} |" in done.stdout
    taken = {row["prompt"] for row in read_records(DATA / "heldout.jsonl")}
    assert not taken & {row["prompt"] for row in read_records(tmp_path / "work" / "problems-0.jsonl")}
