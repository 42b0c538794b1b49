"""Worked values of the diagnostics sheet: entries by name, and their comparison number by number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

ENTRIES: dict[str, dict[str, Any]] = {
    entry["method"]: entry
    for entry in json.loads((Path(__file__).parents[1] / "vectors" / "diagnostics.json").read_text())
}
Reproduce = Callable[["Read"], dict[str, Any]]
REPRODUCED: dict[str, Reproduce] = {}
"""By entry: the function that computes what the entry expects from what it gives."""


class Read(Mapping[str, Any]):
    """The inputs of an entry; remembers which of them were read."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self.inputs, self.seen = inputs, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return self.inputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.inputs)

    def __contains__(self, name: object) -> bool:
        return name in self.inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def tensor(self, name: str) -> Tensor:
        return tensor(self[name])

    def mask(self, name: str) -> Tensor:
        return torch.tensor(self[name], dtype=torch.bool)


def reproduces(*names: str) -> Callable[[Reproduce], Reproduce]:
    """Marks the function that computes entries of these names."""

    def mark(function: Reproduce) -> Reproduce:
        REPRODUCED.update(dict.fromkeys(names, function))
        return function

    return mark


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def plain(value: Any) -> Any:
    """Tensors as numbers and lists."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple | range) else value


def assert_equal(found: Any, expected: Any, place: str = "") -> None:
    """The same names, the same lengths, every number to 1e-9: nothing that is expected can be passed over."""
    found = plain(found)
    if isinstance(expected, dict):
        assert isinstance(found, dict), place
        assert found.keys() == expected.keys(), place
        for name, value in expected.items():
            assert_equal(found[name], value, f"{place}/{name}")
    elif isinstance(expected, list):
        assert isinstance(found, list), place
        assert len(found) == len(expected), place
        for number, value in enumerate(expected):
            assert_equal(found[number], value, f"{place}[{number}]")
    elif expected is None or isinstance(expected, bool):
        assert found is expected, place
    else:
        assert isinstance(found, int | float), place
        assert not isinstance(found, bool), place
        assert found == pytest.approx(expected, rel=1e-9, abs=0 if expected else 1e-12), place


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of every number, truth value and null inside."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in items:
            yield from numbers(item, (*path, name))
    elif not isinstance(value, str):
        yield path


def corrupted(value: Any, path: tuple[Any, ...]) -> Any:
    """A copy with the number at the path changed in its seventh digit, a truth value turned round, a null filled."""
    copy = json.loads(json.dumps(value))
    inner = copy
    for name in path[:-1]:
        inner = inner[name]
    old = inner[path[-1]]
    if isinstance(old, bool):
        inner[path[-1]] = not old
    elif old is None:
        inner[path[-1]] = 0
    else:
        inner[path[-1]] = old * (1 + 1e-7) + (1e-7 if abs(old) < 1e-3 else 0) if isinstance(old, float) else old + 1
    return copy
