"""The JSON schema is valid, accepts what is accepted, and refuses what it can see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefopt.config import recipes_dir
from prefopt.config.document import parse_document, read_document
from prefopt.config.schema import recipe_schema
from prefopt.losses import loss_names
from tests.config.conftest import GOOD
from tests.config.test_recipe import RICH

jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = recipe_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def errors(validator: Any, text: str) -> list[str]:
    return [error.message for error in validator.iter_errors(parse_document(text, "f.yaml").data)]


RECIPES = [file for file in sorted(recipes_dir().rglob("*.yaml")) if file.parent.name not in {"base", "accelerate"}]


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_shipped_recipes_fit(validator: Any, file: Path) -> None:
    assert [error.message for error in validator.iter_errors(read_document(file).data)] == []


@pytest.mark.parametrize("text", [GOOD, RICH, "base: x.yaml\ndata: {max_length: 5}\nreference:\n"])
def test_good_recipes_fit(validator: Any, text: str) -> None:
    assert errors(validator, text) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: dpo", "name: dpoo"),
        ("name: dpo", "name: dpo\n  bta: 0.1"),
        ("name: dpo", "name: dpo\n  beta: -1"),
        ("name: dpo", "name: ipo\n  beta: 1"),
        ("output_dir: run", "output_dir: run\n  lerning_rate: 1"),
        ("output_dir: run", "output_dir: run\n  label_names: [a]"),
        ("output_dir: run", "output_dir: run\n  eval_strategy: stepz"),
        ("train: pairs.jsonl", "train: {path: x, weigth: 1}"),
        ("train: pairs.jsonl", "train: pairs.jsonl\n  max_length: 1"),
        ("train: pairs.jsonl", "train: pairs.jsonl\n  eval: {a: {split: x, weigth: 1}}"),
        ("some/model", "some/model\n  dtype: bf16"),
        ("model:\n", "modell:\n"),
    ],
)
def test_bad_recipes_do_not_fit(validator: Any, old: str, new: str) -> None:
    assert errors(validator, GOOD.replace(old, new))


def test_every_loss_has_its_variant_with_a_description_of_each_option() -> None:
    definitions = recipe_schema()["$defs"]
    for name in loss_names():
        variant = definitions[f"loss-{name}"]
        assert variant["properties"]["name"]["enum"][0] == name
        assert all(option.get("description") for option in variant["properties"].values())


def test_every_setting_has_a_description() -> None:
    for name, section in recipe_schema()["$defs"].items():
        silent = [key for key, value in section["properties"].items() if not value.get("description")]
        assert not silent, f"{name}: {silent}"
