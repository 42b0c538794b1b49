"""Losses that compare prompts see those of all ranks, and with `coupling: step` those of the whole step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ranks.test_two_processes import assert_same, launched_runs
from tests.ranks.worker import run, trajectory

LOSSES: dict[str, dict[str, Any]] = {
    "dr_dpo": {"name": "dr_dpo", "beta_prime": 0.2, "beta": 0.5},
    "beta_dpo": {"name": "beta_dpo", "alpha": 5.0, "beta": 0.5},
    "aot": {"name": "aot", "beta": 0.5},
    "aot_unpaired": {"name": "aot_unpaired", "beta": 0.5},
    "bco_pair": {"name": "bco_pair", "beta": 0.5},
    "bco": {"name": "bco", "beta": 0.5},
    "kto": {"name": "kto", "beta": 0.5},
    "sampo": {"name": "sampo", "beta": 0.5},
    "irpo": {"name": "irpo", "nll_norm": "batch_tokens"},
}


def assert_the_run_of_one(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert_same(found, expected)
    assert found["state"].keys() == expected["state"].keys()
    for name, fields in expected["state"].items():
        for key, value in fields.items():
            ours, theirs = (v["value"] if isinstance(v, dict) else v for v in (found["state"][name][key], value))
            assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6), f"state {name}.{key}"


@pytest.mark.ranks
def test_two_ranks_give_the_trajectory_of_one(tmp_path: Path) -> None:
    """13 rows at a global batch of 4: the last batch has one row, so one rank has nothing but a filler."""
    shared = {"rows": 13, "steps": 5, "learning_rate": 1e-3}
    two = launched_runs(tmp_path / "two", {n: {**shared, "loss": loss, "batch": 2} for n, loss in LOSSES.items()})
    for name, loss in LOSSES.items():
        one = trajectory(run(tmp_path / name, loss=loss, batch=4, **shared))
        assert two[name]["world"] == 2
        assert_the_run_of_one(two[name], one)


@pytest.mark.ranks
def test_with_coupling_step_ranks_and_accumulation_give_the_trajectory_of_one_batch(tmp_path: Path) -> None:
    shared = {"rows": 13, "steps": 5, "learning_rate": 1e-3}
    coupled = {name: loss for name, loss in LOSSES.items() if name != "sampo"}
    cut = {"batch": 1, "gradient_accumulation_steps": 2, "coupling": "step"}
    two = launched_runs(tmp_path / "two", {n: {**shared, **cut, "loss": loss} for n, loss in coupled.items()})
    for name, loss in coupled.items():
        one = trajectory(run(tmp_path / name, loss=loss, batch=4, **shared))
        assert_the_run_of_one(two[name], one)


@pytest.mark.ranks
def test_a_rank_whose_every_row_is_left_out_still_takes_part(tmp_path: Path) -> None:
    """With one row per device, the rank that meets the poisoned row has nothing to compare, and the other waits."""
    shared = {"rows": 8, "steps": 4, "learning_rate": 1e-3, "loss": LOSSES["dr_dpo"], "poisoned": True}
    cuts: dict[str, dict[str, Any]] = {
        "micro": {"batch": 1},
        "step": {"batch": 1, "gradient_accumulation_steps": 2, "coupling": "step"},
    }
    two = launched_runs(tmp_path / "two", {name: {**shared, **cut} for name, cut in cuts.items()})
    for name, batch in (("micro", 2), ("step", 4)):
        assert_the_run_of_one(two[name], trajectory(run(tmp_path / name, batch=batch, **shared)))


def test_on_one_device_eight_micro_batches_with_coupling_step_are_one_batch_of_eight(tmp_path: Path) -> None:
    for name, loss in LOSSES.items():
        if name == "sampo":
            continue
        shared = {"rows": 19, "steps": 4, "learning_rate": 1e-3, "loss": loss}
        one = trajectory(run(tmp_path / f"{name}-one", batch=8, **shared))
        cut = {"batch": 1, "gradient_accumulation_steps": 8, "coupling": "step"}
        many = trajectory(run(tmp_path / f"{name}-many", **cut, **shared))
        assert_the_run_of_one(many, one)
