"""Whatever stands in a recipe, the answer is a recipe or a `ConfigError` in which every line is placed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefopt.config import load_recipe
from prefopt.config.sections import SECTIONS
from prefopt.config.training import NAMES
from prefopt.errors import ConfigError

KNOWN: dict[str, Any] = {
    "model": {"name_or_path": "some/model", "adapter": {"mode": "new", "r": 8, "target_modules": ["q"]}},
    "reference": {"source": "model", "name_or_path": "some/model"},
    "data": {"train": [{"path": "pairs.jsonl", "columns": {"chosen": "chosen"}}], "eval": {"held": "pairs.jsonl"}},
    "loss": [{"name": "dpo", "beta": 0.1}, {"name": "nll", "weight": 0.5}],
    "evaluation": {"generate": {"samples": 2}},
    "training": {"output_dir": "run", "learning_rate": 1e-6, "max_steps": 5, "eval_strategy": "steps", "save_steps": 5},
}

NAMES_OF_SETTINGS = {*SECTIONS, *NAMES, *(name for model in SECTIONS.values() for name in model.model_fields)}
TELLING = [
    "pairs.jsonl",
    "./",
    "..",
    "demo:",
    "demo:x",
    "~",
    "auto",
    "none",
    "a/b",
    "x.parquet",
    "*.parquet",
    "",
    "path",
]
words = st.sampled_from([*sorted(NAMES_OF_SETTINGS), "loss", "beta", "name", *TELLING])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | words
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, value in items for place in places(value, (*path, key)))]


def changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = changed(copy[path[0]], path[1:], value)
    return copy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("any")
    row = {"prompt": "a", "chosen": "b", "rejected": "c", "answer": "b"}
    (folder / "pairs.jsonl").write_text(json.dumps(row))
    return folder


def answer(file: Path, overrides: Any = ()) -> None:
    try:
        load_recipe(file, overrides).resolved()
    except ConfigError as error:
        refused = error.problems
    else:
        return
    assert refused
    for problem in refused:
        assert problem.text.strip()
        assert problem.place or file.name in problem.text


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.sampled_from(places(KNOWN)), value=values, extra=st.none() | st.tuples(words, values))
def test_any_value_at_any_place(
    folder: Path, where: tuple[Any, ...], value: Any, extra: tuple[str, Any] | None
) -> None:
    tree = changed(KNOWN, where, value)
    if extra and isinstance(tree, dict):
        tree = tree | {extra[0]: extra[1]}
    file = folder / "recipe.json"
    file.write_text(json.dumps(tree).replace("NaN", ".nan").replace("-Infinity", "-.inf").replace("Infinity", ".inf"))
    answer(file)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(words | st.text(max_size=3) | st.just("0"), min_size=1, max_size=4), value=values, text=st.booleans()
)
def test_any_override(folder: Path, keys: list[str], value: Any, text: bool) -> None:
    (folder / "recipe.json").write_text(json.dumps(KNOWN))
    dotted = ".".join(keys)
    answer(folder / "recipe.json", [f"{dotted}={json.dumps(value)}"] if text else {dotted: value})


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes(folder: Path, content: bytes) -> None:
    file = folder / "bytes.yaml"
    file.write_bytes(content)
    answer(file)
