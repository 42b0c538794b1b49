"""Layouts, backends and caches give one trajectory on the demonstration model and its pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from prefopt import load_recipe, train
from prefopt.demo import demo_model_path
from prefopt.runs import RunDirectory
from tests.train.test_run import weights

WAYS: dict[str, list[str]] = {
    "shared": ["scoring.layout=shared_prefix"],
    "separate": ["scoring.layout=separate"],
    "trl": ["scoring.backend=trl"],
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
    start = weights(demo_model_path("demo:tiny-math"))
    expected, final = found.pop("separate")
    assert len(expected) == 20
    assert expected[-1]["loss"] != pytest.approx(expected[0]["loss"], abs=1e-3), "something was learned"
    moved = distance(final, start)
    for way, (lines, ours) in found.items():
        for name in ("loss", "grad_norm", "rewards/margins", "logps/chosen"):
            theirs = pytest.approx([line[name] for line in expected], rel=1e-4, abs=1e-5)
            assert [line[name] for line in lines] == theirs, (way, name)
        assert distance(ours, final) < 5e-3 * moved, way


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return float(sum((one[name].float() - other[name].float()).square().sum() for name in one)) ** 0.5
