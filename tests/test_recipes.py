"""Every recipe of a loss takes steps on the demonstration model, and every loss has one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefopt import load_recipe, loss_names, train
from prefopt.demo import DEMO_MODELS

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes" / "losses").rglob("*.yaml"))

with_models = pytest.mark.skipif(
    not all((ROOT / "prefopt" / "demo" / name / "model.safetensors").is_file() for name in DEMO_MODELS),
    reason="the demonstration models are not built: make tiny-math",
)


def test_every_loss_has_a_recipe_of_its_name_with_a_word_on_when_to_choose_it() -> None:
    assert {path.stem for path in RECIPES} == set(loss_names())
    for path in RECIPES:
        assert path.read_text().startswith("# "), f"{path.name} does not say when to choose it"
        assert load_recipe(path).objective().losses[0].name == path.stem


@with_models
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_takes_steps(path: Path, tmp_path: Path) -> None:
    rows = (ROOT / "recipes" / "data" / "tiny-math" / "pairs.jsonl").read_text().splitlines(keepends=True)[:16]
    (tmp_path / "pairs.jsonl").write_text("".join(rows))
    changes = {
        "data.train": str(tmp_path / "pairs.jsonl"),
        "training.output_dir": str(tmp_path / "run"),
        "training.max_steps": 3,
        "training.per_device_train_batch_size": 16,
        "training.logging_steps": 1,
        "training.disable_tqdm": True,
    }
    result = train(load_recipe(path, changes))
    lines = [json.loads(line) for line in (result.run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 3
    assert losses[-1] < losses[0], "three passes over the same batch must lower its objective"
