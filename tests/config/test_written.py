"""Which value wins, and where it was written: command line over recipe over base over defaults."""

# ruff: noqa: E501 - a message stands on one line, as its reader sees it

from __future__ import annotations

from pathlib import Path

import pytest

from prefopt.config import load_recipe
from prefopt.errors import ConfigError
from tests.config.conftest import GOOD, Load, Refused, Write

BASE = """\
model: {name_or_path: some/base, dtype: float32}
data: {train: pairs.jsonl, max_length: 64}
loss: {name: dpo, beta: 0.5}
training: {output_dir: run, learning_rate: 1e-6}
"""


@pytest.fixture
def base(write: Write) -> None:
    write(BASE, "base/cpu.yaml")
    write("", "base/pairs.jsonl").unlink()
    Path("base/pairs.jsonl").write_text(Path("pairs.jsonl").read_text())


def test_the_order_of_precedence(base: None, load: Load) -> None:
    text = "base: base/cpu.yaml\ndata: {max_length: 32, eos: never}\ntraining: {learning_rate: 2e-6}\n"
    recipe = load(text, ["training.learning_rate=5e-7", "loss.beta=0.2"])
    assert recipe.training["learning_rate"] == 5e-7
    assert recipe.objective().losses[0].params.model_dump()["beta"] == 0.2
    assert (recipe.data.max_length, recipe.data.eos, recipe.data.truncate) == (32, "never", "drop")
    assert recipe.model.name_or_path == "some/base"


def test_paths_are_relative_to_the_file_they_stand_in(base: None, load: Load, folder: Path) -> None:
    recipe = load("base: base/cpu.yaml\ndata: {eval: {held: pairs.jsonl}}\n", ["training.output_dir=out"])
    assert recipe.data.train[0].path == str(folder / "base" / "pairs.jsonl")
    assert recipe.data.eval["held"].path == str(folder / "pairs.jsonl")
    assert recipe.training["output_dir"] == str(folder / "out")


def test_another_loss_replaces_the_whole_loss_of_the_base(base: None, load: Load) -> None:
    assert load("base: base/cpu.yaml\nloss: {name: ipo}\n").objective().losses[0].params.model_dump() == {"tau": 0.1}
    kept = load("base: base/cpu.yaml\nloss: {label_smoothing: 0.1}\n").objective().losses[0].params.model_dump()
    assert kept == {"beta": 0.5, "label_smoothing": 0.1, "reference_free": False}


def test_another_source_replaces_the_whole_source_of_the_base(write: Write, load: Load) -> None:
    write(BASE.replace("train: pairs.jsonl", "train: {path: pairs.jsonl, columns: {chosen: rejected}}"), "base.yaml")
    assert load("base: base.yaml\ndata: {train: {path: pairs.jsonl}}\n").data.train[0].columns == {}


def test_null_undoes_the_base(base: None, load: Load) -> None:
    recipe = load("base: base/cpu.yaml\ndata: {max_length: null}\ntraining: {learning_rate: null}\n")
    assert recipe.data.max_length is None  # null is a value of its own here: no limit
    assert "learning_rate" not in recipe.training
    assert load("base: base/cpu.yaml\ndata: {truncate: null}\n").data.truncate == "drop"


def test_problems_name_the_file_in_which_the_value_stands(base: None, refused: Refused, write: Write) -> None:
    write(BASE.replace("max_length: 64", "max_length: 1").replace("beta: 0.5", "bta: 0.5"), "base/cpu.yaml")
    text = "base: base/cpu.yaml\ndata:\n  eos: maybe\n"
    assert refused(text, ["training.seed=x"]) == [
        "recipe.yaml:3: data.eos must be one of 'auto', 'append' or 'never'; got 'maybe'.",
        "base/cpu.yaml:2: data.max_length must be at least 2 tokens; got 1.",
        "base/cpu.yaml:3: loss 'dpo': unknown option 'bta'. Did you mean 'beta'? "
        "Options: beta, label_smoothing, reference_free.",
        "command line: training.seed=x: training.seed must be a whole number; got 'x'.",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: base/cup.yaml\n", "recipe.yaml:1: base: there is no file base/cup.yaml."),
        ("base: [a, b]\n", "recipe.yaml:1: base must be the path of one recipe; got ['a', 'b']."),
        (
            "\nbase: base/two.yaml\n",
            "base/two.yaml:1: a base cannot have a base of its own; one level can still be read.",
        ),
        ("base: base/empty.yaml\n", "base/empty.yaml is empty; a recipe needs model, data, loss and training."),
        ("base: base/twice.yaml\n", "base/twice.yaml:3: 'beta' is written twice; the first is in line 3."),
    ],
)
def test_bases_that_cannot_be_used(base: None, write: Write, refused: Refused, text: str, message: str) -> None:
    write("base: cpu.yaml\n", "base/two.yaml")
    write("# nothing\n", "base/empty.yaml")
    write(BASE.replace("beta: 0.5", "beta: 0.5, beta: 0.6"), "base/twice.yaml")
    assert refused(text) == [message]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "recipe.yaml is empty; a recipe needs model, data, loss and training."),
        ("- a\n- b\n", "recipe.yaml holds a list; a recipe is a mapping of sections: model, data, loss, training, ..."),
        (
            "some text\n",
            "recipe.yaml holds the text 'some text'; a recipe is a mapping of sections: model, data, loss, training, ...",
        ),
    ],
)
def test_files_that_hold_no_recipe(refused: Refused, text: str, message: str) -> None:
    assert refused(text) == [message]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("loss.beta", "a setting is changed by key=value, for instance training.max_steps=10."),
        ("=1", "a setting is changed by key=value, for instance training.max_steps=10."),
        ("loss..beta=1", "a setting is changed by key=value, for instance training.max_steps=10."),
        ("loss.beta=[", "the value is not valid YAML; if it is text, put it in quotes."),
        ("base=x.yaml", "base can only be written in the recipe file."),
        ("loss.name.x=1", "loss.name is 'dpo' and has no parts."),
        ("loss.bta=0.2", "loss 'dpo': unknown option 'bta'. Did you mean 'beta'? Options: beta, label_smoothing, reference_free."),
        ("trainig.seed=1", "unknown option 'trainig'. Did you mean 'training'? Options: base, data, diagnostics, evaluation, "
         "loss, model, reference, safety, scoring, training."),
        ("training.lerning_rate=1", "training: unknown option 'lerning_rate'. Did you mean 'learning_rate'? "
         "Names are those of transformers.TrainingArguments (5.24)."),
        ("training.max_prompt_length=9", "training: 'max_prompt_length' is a name of TRL. Here: data.max_length bounds prompt "
         "and response together, and data.truncate says which end is cut."),
        ("data.max_length=0", "data.max_length must be at least 2 tokens; got 0."),
    ],
)  # fmt: skip
def test_overrides_that_are_refused(refused: Refused, override: str, message: str) -> None:
    assert refused(GOOD, [override]) == [f"command line: {override}: {message}"]


def test_an_override_twice(refused: Refused) -> None:
    lines = refused(GOOD, ["loss.beta=0.1", "loss.beta=0.2"])
    assert lines == ["command line: loss.beta=0.2: 'loss.beta' is set twice."]


def test_overrides_reach_into_lists(load: Load, refused: Refused) -> None:
    text = GOOD.replace("loss:\n  name: dpo\n", "loss: [{name: dpo}, {name: nll, weight: 0.1}]\n")
    recipe = load(text, ["loss.1.weight=0.3", "loss.0.beta=0.7"])
    assert recipe.objective().weights == (1.0, 0.3)
    assert recipe.objective().losses[0].params.model_dump()["beta"] == 0.7
    for wrong in ("loss.beta=1", "loss.2.weight=1"):
        assert refused(text, [wrong]) == [
            f"command line: {wrong}: loss is a list; write the number of one of its parts: loss.0, loss.1."
        ]


def test_overrides_make_the_sections_they_need(load: Load, folder: Path) -> None:
    recipe = load(GOOD, ["model.adapter.r=8", "evaluation.generate={samples: 2}", "data.eval.held=pairs.jsonl"])
    assert recipe.model.adapter is not None
    assert recipe.model.adapter.r == 8
    assert recipe.evaluation.generate is not None
    assert recipe.evaluation.generate.samples == 2
    assert recipe.data.eval["held"].path == str(folder / "pairs.jsonl")


def test_overrides_reach_into_a_source_that_is_given_as_text(load: Load) -> None:
    assert load(GOOD, ["data.train.weight=2"]).data.train[0].weight == 2.0


def test_values_of_overrides_are_yaml(load: Load) -> None:
    recipe = load(
        GOOD, ["training.run_name=no", "training.max_steps=1e1", "training.report_to=[none]", "training.bf16=true"]
    )
    assert {k: recipe.training[k] for k in ("run_name", "max_steps", "report_to", "bf16")} == {
        "run_name": "no",
        "max_steps": 10,
        "report_to": ["none"],
        "bf16": True,
    }


def test_overrides_from_python(write: Write, folder: Path) -> None:
    file = write(GOOD)
    recipe = load_recipe(file, {"loss.beta": 0.2, "training.output_dir": Path("elsewhere"), "model.adapter": {"r": 4}})
    assert recipe.objective().losses[0].params.model_dump()["beta"] == 0.2
    assert recipe.training["output_dir"] == str(folder / "elsewhere")
    with pytest.raises(ConfigError) as caught:
        load_recipe(file, {"loss.beta": -1})
    assert str(caught.value) == "override loss.beta=-1: loss 'dpo': beta must be greater than 0; got -1."


def test_a_recipe_may_be_json(write: Write) -> None:
    text = '{"model": {"name_or_path": "a/b"}, "data": {"train": "pairs.jsonl"},\n "loss": {"name": "dpo", "bta": 1},\n'
    with pytest.raises(ConfigError, match=r"^recipe\.json:2: loss 'dpo': unknown option 'bta'"):
        load_recipe(write(text + ' "training": {"output_dir": "run"}}', "recipe.json"))
    text = text.replace('"bta": 1', '"beta": 1e-1')
    assert load_recipe(write(text + ' "training": {"output_dir": "run"}}', "recipe.json")).loss[0]["beta"] == 0.1
