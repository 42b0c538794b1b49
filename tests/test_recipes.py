"""Every recipe of a loss takes steps on the demonstration model, does what it promises, and every loss has one."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from prefopt import load_recipe, loss_names, train
from prefopt.demo import DEMO_MODELS
from prefopt.losses import loss_spec, modifier_names

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes" / "losses").rglob("*.yaml"))

SHOWS = re.compile(r"^# Shows: (\S+) (rises|falls)\.$", re.MULTILINE)
"""The last line of a header: what its run on the demonstration model shows, in a metric of its own."""

with_models = pytest.mark.skipif(
    not all((ROOT / "prefopt" / "demo" / name / "model.safetensors").is_file() for name in DEMO_MODELS),
    reason="the demonstration models are not built: make tiny-math",
)
by_name = pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)


def test_every_loss_and_weighting_has_a_recipe_of_its_name_with_a_word_on_when_to_choose_it() -> None:
    assert {path.stem for path in RECIPES} == {*loss_names(), *modifier_names()}
    for path in RECIPES:
        text = " ".join(path.read_text().split("\n# "))
        assert text.startswith("# "), f"{path.name} does not say what it is"
        assert "When to choose it:" in text, f"{path.name} does not say when to choose it"
        assert "What to watch:" in text, f"{path.name} does not say what to watch"
        assert SHOWS.search(path.read_text()), f"{path.name} does not say what its run shows"
        (loss,) = load_recipe(path).objective().losses
        assert path.stem in (loss.name, *(modifier.spec.name for modifier in loss.modifiers))


@by_name
def test_the_resolved_recipe_is_one_that_loads(path: Path, tmp_path: Path) -> None:
    recipe = load_recipe(path)
    (tmp_path / "again.yaml").write_text(recipe.resolved())
    assert load_recipe(tmp_path / "again.yaml").objective() == recipe.objective()


@with_models
@by_name
def test_a_recipe_takes_steps(path: Path, tmp_path: Path) -> None:
    (source,) = load_recipe(path).data.train
    rows = Path(source.path).read_text().splitlines(keepends=True)[:16]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    changes = {
        "data.train": str(tmp_path / "rows.jsonl"),
        "training.output_dir": str(tmp_path / "run"),
        "training.max_steps": 3,
        "training.per_device_train_batch_size": 16,
        "training.logging_steps": 1,
        "training.disable_tqdm": True,
    }
    losses = [line["loss"] for line in lines_of(path, changes) if "loss" in line]
    assert len(losses) == 3
    if loss_spec(load_recipe(path).objective().losses[0].name).select is None:
        assert losses[-1] < losses[0], "three passes over the same batch must lower its objective"
    else:
        assert all(map(math.isfinite, losses)), "each step compares other responses"


@with_models
@pytest.mark.slow
@by_name
def test_a_recipe_does_what_its_header_says(path: Path, tmp_path: Path) -> None:
    """The metric of the header's last line, on the first 64 rows of the training data, before and after the run."""
    promise = SHOWS.search(path.read_text())
    assert promise is not None
    metric, way = promise.groups()
    (source,) = load_recipe(path).data.train
    rows = Path(source.path).read_text().splitlines(keepends=True)[:64]
    (tmp_path / "same.jsonl").write_text("".join(rows))
    changes = {
        "data.eval": {"same": {"path": str(tmp_path / "same.jsonl")}},
        "training.eval_on_start": True,
        "training.output_dir": str(tmp_path / "run"),
        "training.disable_tqdm": True,
    }
    values = [line[f"eval_same_{metric}"] for line in lines_of(path, changes) if f"eval_same_{metric}" in line]
    before, after = values[0], values[-1]
    assert len(values) > 1
    assert after > before if way == "rises" else after < before, f"{metric}: {before:.4g}, then {after:.4g}"


def lines_of(path: Path, changes: dict[str, object]) -> list[dict[str, float]]:
    result = train(load_recipe(path, changes))
    return [json.loads(line) for line in (result.run / "metrics.jsonl").read_text().splitlines()]
