"""`accelerate launch` with the configuration that ships starts two processes, and they give the run of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prefopt import train
from tests.train.folder import recipe
from tests.train.test_run import assert_same_metrics, weights

ROOT = Path(__file__).parents[2]
LAUNCH = [
    sys.executable,
    "-m",
    "accelerate.commands.launch",
    "--config_file",
    str(ROOT / "recipes/accelerate/ddp-cpu.yaml"),
]


def launched(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [*LAUNCH, "-m", "prefopt", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def sections(batch: int) -> dict[str, Any]:
    training = {
        "per_device_train_batch_size": batch,
        "max_steps": 5,
        "learning_rate": 1e-4,
        "lr_scheduler_type": "constant",
    }
    data = {"train": "pairs.jsonl", "eval": {"held": "pairs.jsonl"}}
    return {"training": training, "data": data, "evaluation": {"generate": {"max_new_tokens": 3}}}


@pytest.mark.ranks
def test_two_processes_from_a_recipe_give_the_run_of_one(tmp_path: Path) -> None:
    train(recipe(tmp_path, {"training.output_dir": str(tmp_path / "one")}, **sections(4)))
    recipe(tmp_path, **sections(2))
    done = launched("train", str(tmp_path / "recipe.json"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["processes"] == 2
    assert_same_metrics(tmp_path / "run", tmp_path / "one")
    ours, theirs = weights(tmp_path / "run"), weights(tmp_path / "one")
    for name, tensor in theirs.items():
        assert (ours[name] - tensor).abs().max() < 1e-5, name
    assert done.stdout.count("run directory:") == 1, "only the first process reports"


@pytest.mark.ranks
def test_a_mistake_is_told_once_and_every_process_ends(tmp_path: Path) -> None:
    recipe(tmp_path, **sections(2))
    done = launched("train", str(tmp_path / "recipe.json"), "loss.bta=0.3")
    assert done.returncode != 0
    assert done.stderr.count("Did you mean 'beta'?") == 1
