"""A folder with a recipe that is in order, to be changed for the worse."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from prefopt.config import Recipe, load_recipe
from prefopt.errors import ConfigError

PAIRS = [{"prompt": f"{n} + 1 = ", "chosen": str(n + 1), "rejected": str(n), "answer": str(n + 1)} for n in range(4)]
GOOD = """\
model:
  name_or_path: some/model
data:
  train: pairs.jsonl
loss:
  name: dpo
training:
  output_dir: run
"""

Write = Callable[..., Path]
Load = Callable[..., Recipe]
Refused = Callable[..., list[str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with four pairs, and the current one, so that messages name files shortly."""
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, PAIRS)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Write:
    """Write a file of that folder: text, or records as JSON lines."""

    def write(content: str | Sequence[Any], name: str = "recipe.yaml") -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else "\n".join(map(json.dumps, content)), encoding="utf-8")
        return path

    return write


@pytest.fixture
def load(write: Write) -> Load:
    """Load a recipe from its text."""
    return lambda text=GOOD, overrides=(): load_recipe(write(text), overrides)


@pytest.fixture
def refused(load: Load) -> Refused:
    """The lines of the error that a recipe's text gets."""

    def refused(text: str, overrides: Any = ()) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(text, overrides)
        return str(caught.value).split("\n")

    return refused
