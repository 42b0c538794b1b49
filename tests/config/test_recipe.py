"""A recipe in memory: what it binds, and the text that repeats the run from its own folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from prefopt.config import Recipe, load_recipe, recipes_dir
from prefopt.config.document import parse_document, read_document
from prefopt.config.shipped import copy_recipes
from prefopt.errors import ConfigError
from prefopt.losses import _registry, loss_names, register_loss
from prefopt.params import LossParams
from tests.config.conftest import GOOD, Load, Write

NO_RECIPES = {"base", "accelerate", "demo"}  # parts of recipes, launch files, and what needs files of its own
SHIPPED = [file for file in sorted(recipes_dir().rglob("*.yaml")) if file.parent.name not in NO_RECIPES]

RICH = """\
model:
  name_or_path: some/model
  adapter: {r: 8, target_modules: [q_proj, v_proj]}
reference: {source: model, name_or_path: other/model, revision: v1}
data:
  train:
    - pairs.jsonl
    - {path: pairs.jsonl, columns: {prompt: prompt}, weight: 0.5}
  eval: {held-out: pairs.jsonl}
  max_length: null
  chat_template: "{{ a }}\\n{{ b }}"
loss:
  - {name: dpo, beta: 0.3}
  - {name: nll, weight: 0.2}
evaluation: {generate: {samples: 2}}
training:
  output_dir: ~/runs/x
  learning_rate: 5e-7
  lr_scheduler_kwargs: {a: 1, b: null}
  report_to: [none]
  run_name: "no"
"""


def same(one: Recipe, other: Recipe) -> bool:
    return one.objective() == other.objective() and one.model_dump(exclude={"loss"}) == other.model_dump(
        exclude={"loss"}
    )


def again(recipe: Recipe, folder: Path) -> Recipe:
    """The resolved recipe, read from another folder, as from the run directory."""
    file = folder / "elsewhere" / "recipe.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(recipe.resolved(), encoding="utf-8")
    return load_recipe(file)


@pytest.mark.parametrize("text", [GOOD, RICH, GOOD.replace("dpo", "simpo"), GOOD + "  max_steps: 3\n"])
def test_the_resolved_recipe_repeats_the_run_from_its_own_folder(load: Load, folder: Path, text: str) -> None:
    recipe = load(text)
    repeated = again(recipe, folder)
    assert same(recipe, repeated)
    assert repeated.resolved() == recipe.resolved()


def test_what_overrides_leave_without_effect_is_not_in_the_resolved_recipe(load: Load, folder: Path) -> None:
    recipe = load(GOOD + "  num_train_epochs: 3\n  eval_steps: 4\n  eval_strategy: steps\n", [
        "training.max_steps=5", "training.eval_strategy=no", "model.adapter={mode: continue, start: some/adapter}"
    ])  # fmt: skip
    repeated = again(recipe, folder)
    assert repeated.training == {
        k: v for k, v in recipe.training.items() if k not in {"num_train_epochs", "eval_steps"}
    }
    assert repeated.model == recipe.model


def test_defaults_of_losses_are_written_out(load: Load) -> None:
    """A later version with other defaults must not change what a kept recipe means."""
    assert "label_smoothing: 0.0" in load(GOOD).resolved()


def test_null_and_lists_in_a_loss_survive(load: Load, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loss_names()  # discovery happens once, and must fill the real table
    monkeypatch.setattr(_registry, "_specs", dict(_registry._specs))
    monkeypatch.setattr(_registry, "_aliases", dict(_registry._aliases))

    class OddParams(LossParams):
        limit: float | None = 1.0
        sizes: tuple[int, ...] = (1,)

    register_loss("odd", params=OddParams, source="nowhere")(lambda scores, params: scores)
    recipe = load(GOOD.replace("name: dpo", "name: odd\n  limit: null\n  sizes: [2, 3]"))
    assert recipe.objective().losses[0].params == OddParams(limit=None, sizes=(2, 3))
    assert same(recipe, again(recipe, folder))


def test_paths_are_absolute_and_names_stay(load: Load, folder: Path) -> None:
    recipe = load(RICH)
    assert recipe.data.train[0].path == str(folder / "pairs.jsonl")
    assert recipe.training["output_dir"] == str(Path("~/runs/x").expanduser())
    assert recipe.model.name_or_path == "some/model"
    assert recipe.source_path == Path("recipe.yaml")


def test_a_folder_beside_the_recipe_wins_over_a_hub_id(write: Write, load: Load, folder: Path) -> None:
    write("{}", "some/model/config.json")
    assert load(GOOD).model.name_or_path == str(folder / "some" / "model")


def test_the_objective_is_bound_with_its_weights(load: Load) -> None:
    objective = load(RICH).objective()
    assert [loss.name for loss in objective.losses] == ["dpo", "nll"]
    assert objective.weights == (1.0, 0.2)
    assert objective.losses[0].params.model_dump()["beta"] == 0.3


def test_a_recipe_is_frozen(load: Load) -> None:
    recipe = load(GOOD)
    with pytest.raises(ValidationError):
        recipe.model = None  # type: ignore[assignment, misc]
    with pytest.raises(ValidationError):
        recipe.data.max_length = 3  # type: ignore[misc]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    beta=st.floats(1e-300, 1e300),
    rate=st.floats(0, 1, exclude_min=True),
    name=st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1),
    length=st.none() | st.integers(2, 2**40),
)
def test_any_value_survives_the_resolved_text(
    load: Load, folder: Path, beta: float, rate: float, name: str, length: int | None
) -> None:
    changes = {"loss.beta": beta, "training.learning_rate": rate, "training.run_name": name, "data.max_length": length}
    recipe = load_recipe(folder / "recipe.yaml", changes) if (folder / "recipe.yaml").exists() else load(GOOD, changes)
    assert same(recipe, again(recipe, folder))


PAIRS = recipes_dir() / "data" / "tiny-math" / "pairs.jsonl"


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_shipped_recipes_are_in_order(file: Path, tmp_path: Path) -> None:
    made = file.parent.parent.name == "studies"  # by the study's own script, before it trains
    recipe = load_recipe(file, {"data.train": str(PAIRS)} if made else {})
    assert recipe.warnings == ()
    assert same(recipe, again(recipe, tmp_path))
    assert file.read_text(encoding="utf-8").startswith("# "), "a recipe begins with when to choose it"


@pytest.mark.parametrize("file", sorted(recipes_dir().glob("losses/*.yaml")), ids=lambda file: file.stem)
def test_a_recipe_is_named_after_its_loss_or_weighting(file: Path) -> None:
    (loss,) = load_recipe(file).objective().losses
    assert file.stem in (loss.name, *(modifier.spec.name for modifier in loss.modifiers))


def test_recipes_are_copied_whole_and_work_where_they_are(tmp_path: Path) -> None:
    recipes = copy_recipes(tmp_path / "new")
    recipe = load_recipe(recipes / "losses" / "dpo.yaml")
    assert recipe.data.train[0].path.startswith(str(recipes))
    assert recipe.training["output_dir"] == str(tmp_path / "new" / "runs" / "dpo")


def test_copying_keeps_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text("mine")
    (tmp_path / "recipes" / "quickstart.yaml").write_text("old")
    with pytest.raises(ConfigError, match=r"is not empty\. Name a new folder, or say --overwrite"):
        copy_recipes(tmp_path)
    copy_recipes(tmp_path, overwrite=True)
    assert (tmp_path / "recipes" / "mine.yaml").read_text() == "mine"
    assert (tmp_path / "recipes" / "quickstart.yaml").read_text() != "old"
    assert [path.name for path in tmp_path.iterdir()] == ["recipes"], "nothing temporary is left behind"
    with pytest.raises(ConfigError, match="is a file; name a new folder"):
        copy_recipes(tmp_path / "recipes" / "mine.yaml")


def test_the_readme_shows_what_the_quickstart_says() -> None:
    """Its recipe is shortened: what it shows is in the file, with the same value."""
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    shown = parse_document(text.partition("```yaml\n")[2].partition("```")[0], "README.md").data
    whole = read_document(recipes_dir() / "quickstart.yaml").data
    assert shown.keys() == whole.keys()
    for section, values in shown.items():
        assert {name: whole[section].get(name) for name in values} == values
