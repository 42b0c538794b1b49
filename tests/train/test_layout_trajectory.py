"""Layouts, backends and caches give one trajectory on the demonstration model and its pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from prefopt import load_recipe, train
from prefopt.runs import RunDirectory
from tests.train.test_run import weights

WAYS: dict[str, list[str]] = {
    "shared": ["scoring.layout=shared_prefix"],
    "separate": ["scoring.layout=separate"],
    "plain": ["scoring.layout=separate", "scoring.backend=plain"],
}


def trajectory(repository: Path, folder: Path, way: str) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    changes = [
        f"training.output_dir={folder / way}",
        "training.max_steps=20",
        "training.logging_steps=1",
        "training.per_device_train_batch_size=4",
        "training.save_strategy=no",
        "training.eval_strategy=no",
        "data.eval=null",
        "evaluation.generate=null",
    ]
    train(load_recipe(repository / "recipes" / "quickstart.yaml", changes + WAYS[way]))
    return [m for m in RunDirectory(folder / way).metrics() if "loss" in m], weights(folder / way)


def test_layouts_and_backends_agree_over_twenty_steps(repository: Path, tmp_path: Path) -> None:
    found = {way: trajectory(repository, tmp_path, way) for way in WAYS}
    expected, final = found["separate"]
    assert len(expected) == 20
    start = expected[0]["loss"]
    assert expected[-1]["loss"] != pytest.approx(start, abs=1e-3), "something was learned"
    for way in ("shared", "plain"):
        lines, ours = found[way]
        for name in ("loss", "grad_norm", "rewards/margins", "logps/chosen"):
            assert [line[name] for line in lines] == pytest.approx([line[name] for line in expected], rel=1e-4, abs=1e-5), name
        for name, value in final.items():
            torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-5)
