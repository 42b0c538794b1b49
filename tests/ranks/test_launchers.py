"""`accelerate launch` with the configuration that ships starts two processes, and they give the run of one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from prefopt import train
from tests.train.folder import recipe
from tests.train.test_run import assert_same_metrics, metrics, weights

ROOT = Path(__file__).parents[2]
CONFIGURATIONS = ROOT / "recipes" / "accelerate"
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--main_process_port", "0"]
"""With a port of its own, since tests run side by side."""


def launched(
    *words: str, configuration: Path = CONFIGURATIONS / "ddp-cpu.yaml", module: str = "prefopt"
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "DS_ACCELERATOR": "cpu"}
    command = [*LAUNCH, "--config_file", str(configuration), "-m", module, *words]
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
    tables = sorted(path.name for path in (tmp_path / "one" / "diagnostics").glob("probes-*.parquet"))
    assert len(tables) == 2, "the start and the end"
    for name in tables:
        ours, theirs = (pq.read_table(tmp_path / run / "diagnostics" / name).to_pylist() for run in ("run", "one"))
        assert [row["id"] for row in ours] == [row["id"] for row in theirs]
        for row, other in zip(ours, theirs, strict=True):
            assert row.keys() == other.keys()
            for column, value in other.items():
                expected = pytest.approx(value, rel=1e-4, abs=1e-4) if isinstance(value, float) else value
                assert row[column] == expected, column


@pytest.mark.ranks
def test_a_mistake_is_told_once_and_every_process_ends(tmp_path: Path) -> None:
    recipe(tmp_path, **sections(2))
    done = launched("train", str(tmp_path / "recipe.json"), "loss.bta=0.3")
    assert done.returncode != 0
    assert done.stderr.count("Did you mean 'beta'?") == 1


def on_two_cpus(name: str, folder: Path) -> Path:
    """The configuration that ships, for two processes on a CPU instead of eight GPUs."""
    text = (CONFIGURATIONS / name).read_text().replace("num_processes: 8", "num_processes: 2")
    (folder / name).write_text(text + "use_cpu: true\n")
    return folder / name


@pytest.mark.ranks
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="DeepSpeed compiles its CPU collectives, and there is no g++")
def test_zero_2_gives_the_run_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    train(recipe(tmp_path, {"training.output_dir": str(tmp_path / "one")}, **sections(4)))
    recipe(tmp_path, **sections(2))
    configuration = on_two_cpus("zero2.yaml", tmp_path)
    done = launched("train", str(tmp_path / "recipe.json"), configuration=configuration)
    assert done.returncode == 0, done.stderr[-3000:]
    losses = [[m["loss"] for m in metrics(tmp_path / run) if "loss" in m] for run in ("run", "one")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    ours, theirs = weights(tmp_path / "run"), weights(tmp_path / "one")
    for name, tensor in theirs.items():
        assert (ours[name] - tensor).abs().max() < 1e-5, name


@pytest.mark.ranks
def test_two_processes_fill_one_cache_and_read_it(tmp_path: Path) -> None:
    cache = {"reference": {"cache": str(tmp_path / "cache")}}
    train(recipe(tmp_path, {"training.output_dir": str(tmp_path / "one")}, **sections(4)))
    recipe(tmp_path, **sections(2), **cache)
    filled = launched("reference", str(tmp_path / "recipe.json"))
    assert filled.returncode == 0, filled.stderr[-3000:]
    assert "24 in " in filled.stdout
    assert len(list((tmp_path / "cache").glob("part-*"))) == 2
    done = launched("train", str(tmp_path / "recipe.json"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert_same_metrics(tmp_path / "run", tmp_path / "one")
