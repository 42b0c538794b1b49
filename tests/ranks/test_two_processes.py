"""Two real processes give the run of one: gloo on CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.worker import run, trajectory

ROOT = Path(__file__).parent.parent.parent


def launched(folder: Path, options: dict[str, Any], *, processes: int = 2) -> dict[str, Any]:
    return launched_runs(folder, {"only": options}, processes=processes)["only"]


def launched_runs(folder: Path, runs: dict[str, dict[str, Any]], *, processes: int = 2) -> dict[str, dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--standalone"]
    command = [*launcher, "-m", "tests.ranks.worker", str(folder), json.dumps(runs)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "trajectories.json").read_text())


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in (
        "loss",
        "grad_norm",
        "rewards/margins",
        "rewards/accuracies",
        "logps/chosen",
        "num_tokens",
        "displacement/chosen_delta_per_token",
        "coefficients/chosen",
        "coefficients/rejected",
        "parameters",
    ):
        assert found[name] == pytest.approx(expected[name], rel=1e-5, abs=1e-5), name
    assert found["eval"] == pytest.approx(expected["eval"], rel=1e-5, abs=1e-6)


@pytest.mark.ranks
@pytest.mark.parametrize("rows", [16, 13], ids=["even", "ragged"])
def test_two_ranks_give_the_trajectory_of_one(rows: int, tmp_path: Path) -> None:
    """13 rows at a global batch of 4: the last batch has one row, so one rank has nothing but a filler."""
    two = launched(tmp_path / "two", {"rows": rows, "batch": 2, "steps": 6})
    one = trajectory(run(tmp_path / "one", rows=rows, batch=4, steps=6))
    assert two["world"] == 2
    assert_same(two, one)


@pytest.mark.ranks
def test_an_evaluation_before_training_does_not_keep_ranks_from_exchanging_gradients(tmp_path: Path) -> None:
    two = launched(tmp_path / "two", {"rows": 16, "batch": 2, "steps": 4, "evaluate_first": True})
    one = trajectory(run(tmp_path / "one", rows=16, batch=4, steps=4))
    assert_same(two, one)


@pytest.mark.ranks
def test_two_ranks_with_accumulation_give_the_trajectory_of_one(tmp_path: Path) -> None:
    two = launched(tmp_path / "two", {"rows": 14, "batch": 1, "steps": 6, "gradient_accumulation_steps": 2})
    one = trajectory(run(tmp_path / "one", rows=14, batch=4, steps=6))
    assert_same(two, one)


@pytest.mark.ranks
def test_two_ranks_with_batches_by_tokens_give_the_trajectory_of_one(tmp_path: Path) -> None:
    """Micro-batches of 64 tokens, dealt in turn: two ranks see in one step what one sees in two micro-batches."""
    shared = {"rows": 14, "batch": 1, "steps": 6, "tokens_per_batch": 64}
    two = launched(tmp_path / "two", shared)
    one = trajectory(run(tmp_path / "one", **shared, gradient_accumulation_steps=2))
    assert_same(two, one)
