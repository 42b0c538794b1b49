"""What was written: a recipe file over its base, `key=value` over both; plain data with the place of everything."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prefopt.config.document import Document, Place, Twice, parse_document, read_document
from prefopt.errors import ConfigError, InputError, Problem
from prefopt.params import KeyPath, shown

FILE, BASE, COMMAND = 0, 1, 2
"""Ranks of places, in the order in which problems are listed."""

Overrides = Mapping[str, Any] | Sequence[str]


@dataclass(frozen=True)
class Written:
    """The settings of a recipe before any check, and where each was written."""

    data: dict[str, Any]
    places: dict[KeyPath, Place]
    file: Place
    twice: Twice = field(default_factory=list)
    """What was written again after it; the recipe is refused, after everything else was looked at."""

    def place(self, path: KeyPath) -> Place:
        """Where the setting at `path` was written, or one in it, or the closest around it; at last the file alone."""
        inside = [where for place, where in self.places.items() if place[: len(path)] == path]
        if inside and path not in self.places:
            return min(inside)
        for end in range(len(path), 0, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return self.file

    def get(self, *path: str | int) -> Any:
        """The value at `path`, or None."""
        value: Any = self.data
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def has(self, *path: str | int) -> bool:
        """Whether something other than null was written at `path`."""
        return self.get(*path) is not None

    def is_over(self, path: KeyPath, other: KeyPath) -> bool:
        """Whether what stands at `path` was written later than the other: an override, or a recipe over its base."""
        order = (BASE, FILE, COMMAND)
        return order.index(self.place(path).rank) > order.index(self.place(other).rank)

    def as_written(self, path: KeyPath) -> KeyPath:
        """The path as the user would write it: a single source needs no index, a source given as text has no keys."""
        out: list[str | int] = []
        value: Any = self.data
        for part in path:
            if isinstance(value, str):
                break
            if isinstance(part, int) and not isinstance(value, list | tuple):
                continue
            out.append(part)
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                value = None
        return tuple(out)

    def map_text(self, path: KeyPath, change: Callable[[str, Path], str]) -> Written:
        """The same with the text at `path` replaced by `change(text, folder it is relative to)`."""
        value = self.get(*path)
        if not isinstance(value, str):
            return self
        new = change(value, self.place(path).folder)
        return self if new == value else replace(self, data=_with(self.data, path, new))


def read_written(file: Path, overrides: Overrides = ()) -> Written:
    """Read a recipe, its base and what overrides both.

    Raises: `ConfigError` with every problem that can be found before the settings have a meaning.
    """
    name = _shown_path(file)
    twice: Twice = []
    document = read_document(file, shown=name, rank=FILE, twice=twice)
    place = Place(FILE, 0, name, file.parent.absolute())
    data = _mapping(document, name)
    found: list[Problem] = []
    places = dict(document.places)
    base = _base(document, data, found, twice)
    data = {key: value for key, value in data.items() if key != "base"}
    if base is not None:
        data, places = _merged(base.data, base.places, data, places)
    for key, value, label in _pairs(overrides, found):
        here = Place(COMMAND, 0, label, Path.cwd())
        try:
            data = _assigned(data, places, key, value, here)
        except ConfigError as error:
            found += [replace(problem, place=label) for problem in error.problems]
    if found:
        raise ConfigError(*(Problem(text, place=str(where)) for where, text in twice), *found)
    return Written(data, {path: where for path, where in places.items() if path}, place, twice)


def _mapping(document: Document, name: str) -> dict[str, Any]:
    if document.data is None:
        raise ConfigError(f"{name} is empty; a recipe needs model, data, loss and training.")
    if not isinstance(document.data, dict):
        kind = "a list" if isinstance(document.data, list) else f"the text {shown(document.data)}"
        raise ConfigError(f"{name} holds {kind}; a recipe is a mapping of sections: model, data, loss, training, ...")
    return document.data


def _base(document: Document, data: Mapping[str, Any], found: list[Problem], twice: Twice) -> Document | None:
    """The file named by `base:`, read; its problems go to `found` and `twice`."""
    if data.get("base") is None:
        return None
    place = document.places["base",]
    if not isinstance(data["base"], str):
        found.append(Problem(f"base must be the path of one recipe; got {shown(data['base'])}.", ("base",), str(place)))
        return None
    file = Path(os.path.normpath(place.folder / Path(data["base"]).expanduser()))
    name = _shown_path(file)
    if not file.exists():
        found.append(Problem(f"base: there is no file {name}.", ("base",), str(place)))
        return None
    try:
        base = read_document(file, shown=name, rank=BASE, twice=twice)
        if "base" in _mapping(base, name):
            where = str(base.places["base",])
            found.append(
                Problem("a base cannot have a base of its own; one level can still be read.", ("base",), where)
            )
    except InputError as error:
        found += error.problems
        return None
    return Document({key: value for key, value in base.data.items() if key != "base"}, base.places)


def _merged(
    base: Any, base_places: Mapping[KeyPath, Place], mine: Any, my_places: Mapping[KeyPath, Place]
) -> tuple[Any, dict[KeyPath, Place]]:
    """Mine over the base: mappings are merged, everything else replaces what stood there."""
    places = dict(base_places)

    def over(below: Any, above: Any, path: KeyPath) -> Any:
        if isinstance(below, dict) and isinstance(above, dict) and not _is_unit(below, above, path):
            return below | {key: over(below[key], v, (*path, key)) if key in below else v for key, v in above.items()}
        for old in [old for old in places if old[: len(path)] == path]:
            del places[old]
        return above

    data = over(base, mine, ())
    return data, {**places, **my_places}


def _is_unit(below: Mapping[str, Any], above: Mapping[str, Any], path: KeyPath) -> bool:
    """A source, the evaluation sets, and another loss replace as a whole: their parts belong together."""
    if path == ("loss",):
        return "name" in above and above["name"] != below.get("name")
    return path in {("data", "train"), ("data", "eval")}


def _pairs(overrides: Overrides, found: list[Problem]) -> list[tuple[KeyPath, Any, str]]:
    """Path, value and label of each override."""
    if isinstance(overrides, str):  # a text is a sequence too
        overrides = [overrides]
    if isinstance(overrides, Mapping):
        return [(_keys(key), _plain(value), f"override {key}={shown(value)}") for key, value in overrides.items()]
    pairs: list[tuple[KeyPath, Any, str]] = []
    for text in overrides:
        label = f"command line: {text}"
        key, equals, value = text.partition("=")
        if not equals or not key.strip(".") or ".." in key:
            found.append(Problem("a setting is changed by key=value, for instance training.max_steps=10.", place=label))
        elif any(path == _keys(key) for path, _, _ in pairs):
            found.append(Problem(f"'{key.strip()}' is set twice.", place=label))
        else:
            try:
                pairs.append((_keys(key), parse_document(value, "value").data, label))
            except ConfigError:
                found.append(Problem("the value is not valid YAML; if it is text, put it in quotes.", place=label))
    return pairs


def _keys(dotted: str) -> KeyPath:
    return tuple(int(part) if part.isdecimal() else part for part in dotted.strip().split("."))


def _plain(value: Any) -> Any:
    """A value from Python as a file would have it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _assigned(data: dict[str, Any], places: dict[KeyPath, Place], path: KeyPath, value: Any, here: Place) -> Any:
    """The data with `value` at `path`; `places` are brought up to date. Missing mappings on the way are made."""
    if path == ("base",):
        raise ConfigError("base can only be written in the recipe file.")
    current: Any = data
    for depth, part in enumerate(path):
        name = ".".join(map(str, path[:depth]))
        if isinstance(current, str) and _is_source(path[:depth]):
            current = {"path": current}
            data = _with(data, path[:depth], current)
        if isinstance(current, list):
            if not isinstance(part, int) or part >= len(current):
                options = ", ".join(f"{name}.{number}" for number in range(len(current)))
                raise ConfigError(f"{name} is a list; write the number of one of its parts: {options}.")
            current = current[part]
        elif current is None or isinstance(current, dict):
            current = (current or {}).get(part)
        else:
            raise ConfigError(f"{name} is {shown(current)} and has no parts.")
    for old in [old for old in places if old[: len(path)] == path]:
        del places[old]
    places[path] = here
    return _with(data, path, value)


def _is_source(path: KeyPath) -> bool:
    """Whether a text at this place is short for `{path: text}`."""
    return path == ("data", "train") or (path[:2] in {("data", "train"), ("data", "eval")} and len(path) == 3)


def _with(data: Any, path: KeyPath, value: Any) -> Any:
    """A copy of nested data with `value` at `path`."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(data, list):
        return [_with(item, rest, value) if number == first else item for number, item in enumerate(data)]
    data = data or {}
    return {**data, str(first): _with(data.get(first), rest, value)}


def _shown_path(path: Path) -> str:
    """A path as a person would write it: relative when it lies below the current folder."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
