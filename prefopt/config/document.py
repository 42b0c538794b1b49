"""A recipe file as plain data, with the line of everything in it.

YAML 1.2, read as data: no tags, no objects, no merge keys, no second document. JSON is YAML. Built from the composed
nodes rather than by a constructor: a node knows its line, and a constructor keeps only the last of two equal keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from prefopt.errors import ConfigError, Problem, did_you_mean
from prefopt.params import KeyPath

LARGEST_FILE = 200_000
"""Bytes. A recipe is a page of text; whoever names a data file by mistake is told at once."""

MOST_VALUES = 20_000
"""Values after aliases are written out; ten lines of aliases to aliases could fill the memory."""

DEEPEST = 40

_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, order=True)
class Place:
    """Where a setting was written: a file and a line from 1, or what was typed on the command line (line 0).

    `rank` sorts the places of one recipe; relative paths that stand there are relative to `folder`.
    """

    rank: int
    line: int
    source: str
    folder: Path = field(default=Path(), compare=False)

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True)
class Document:
    """Plain data, and the place of every key and list item in it."""

    data: Any
    places: dict[KeyPath, Place] = field(default_factory=dict)


Twice = list[tuple[Place, str]]
"""Keys with a plain value that were written again, and what to say; the first value stands."""


def read_document(path: Path, *, shown: str = "", rank: int = 0, twice: Twice | None = None) -> Document:
    """The file as data. `shown` is how error messages call it.

    With a list `twice`, keys that stand twice go there and do not hide what else is wrong with the recipe.

    Raises: `ConfigError` for a file that cannot be read, is not text, or is not YAML as described above.
    """
    name = shown or str(path)
    text = _text(path, name)
    if path.suffix.lower() == ".json":  # JSON allows tabs between tokens, and nowhere else
        text = text.replace("\t", " ")
    return parse_document(text, name, rank=rank, folder=path.parent.absolute(), twice=twice)


def parse_document(
    text: str, name: str, *, rank: int = 0, folder: Path = Path(), twice: Twice | None = None
) -> Document:
    """The text as data; `name` and `folder` stand in its places, and `twice` is as for `read_document`."""
    try:
        nodes = list(YAML(typ="safe", pure=True).compose_all(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        what = " ".join(str(part) for part in (error.context, error.problem) if part)
        raise ConfigError(f"{name}{line}: not valid YAML: {what}.") from None
    except (YAMLError, ValueError) as error:
        raise ConfigError(f"{name}: not valid YAML: {str(error).splitlines()[0]}.") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested deeper than {DEEPEST} levels.") from None
    if len(nodes) > 1:
        raise ConfigError(f"{name}:{nodes[1].start_mark.line + 1}: a second YAML document begins; a recipe is one.")
    reader = _Reader(name, rank, folder)
    data = reader.value(nodes[0], (), ()) if nodes and nodes[0] is not None else None
    if len(reader.problems) > (0 if twice is None else len(reader.twice)):
        raise ConfigError(*reader.problems)
    if twice is not None:
        twice += reader.twice
    return Document(data, reader.places)


def _text(path: Path, name: str) -> str:
    if path.is_dir():
        raise ConfigError(f"{name} is a folder; name the recipe file in it.")
    if not path.exists():
        raise ConfigError(f"{name}: there is no such file.{_neighbours(path)}")
    if not path.is_file():
        raise ConfigError(f"{name} is not a regular file.")
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ConfigError(f"{name} has {path.stat().st_size:,} bytes: that is no recipe, which is a page of text.")
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}.") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}:{line}: not UTF-8 text (byte 0x{content[error.start]:02x}).") from None
    if "\0" in text:
        raise ConfigError(f"{name} is a binary file, not a recipe.")
    return text


def _neighbours(path: Path) -> str:
    folder = path.parent
    names = [item.name for item in folder.iterdir() if item.is_file()] if folder.is_dir() else []
    return did_you_mean(path.name, names)


class _Reader:
    """Turns nodes into data; collects problems instead of stopping at the first."""

    def __init__(self, name: str, rank: int, folder: Path) -> None:
        self.name, self.rank, self.folder = name, rank, folder
        self.places: dict[KeyPath, Place] = {}
        self.problems: list[Problem] = []
        self.twice: Twice = []
        self.values = 0

    def value(self, node: Node, path: KeyPath, above: tuple[int, ...]) -> Any:
        self.places.setdefault(path, self._place(node))
        self.values += 1
        if self.values > MOST_VALUES:
            raise ConfigError(f"{self.name}: more than {MOST_VALUES:,} values, aliases written out.")
        if id(node) in above or len(above) > DEEPEST:
            raise ConfigError(f"{self._place(node)}: nested deeper than {DEEPEST} levels, or an alias inside itself.")
        above = (*above, id(node))
        if isinstance(node, MappingNode):
            return self._mapping(node, path, above)
        if isinstance(node, SequenceNode):
            self._plain_tag(node, "seq")
            return [self.value(item, (*path, index), above) for index, item in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        return self._scalar(node)

    def _mapping(self, node: MappingNode, path: KeyPath, above: tuple[int, ...]) -> dict[str, Any]:
        self._plain_tag(node, "map")
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if str(key_node.tag) == f"{_TAG}merge":
                self._problem(key_node, "merge keys (<<) are not read; `base:` names a file to build on.")
            elif not isinstance(key_node, ScalarNode) or str(key_node.tag) != f"{_TAG}str":
                self._problem(key_node, f"a key must be text; got {_shown(key)}.")
            elif key in lines:
                text = f"'{key}' is written twice; the first is in line {lines[key]}."
                self._problem(key_node, text)
                if isinstance(value_node, ScalarNode):  # what is missing may stand in a section's second half
                    self.twice.append((self._place(key_node), text))
            else:
                lines[key] = key_node.start_mark.line + 1
                self.places[*path, key] = self._place(key_node)
                data[key] = self.value(value_node, (*path, key), above)
        return data

    def _scalar(self, node: ScalarNode) -> Any:
        kind = str(node.tag).removeprefix(_TAG)
        text = node.value
        try:
            match kind:
                case "null":
                    return None
                case "bool":
                    return text.lower() == "true"
                case "int":
                    return _integer(text)
                case "float":
                    return _float(text)
                case "str" | "timestamp" | "value" | "merge":  # YAML 1.2 knows no dates
                    return _joined_surrogates(text)
        except ValueError:
            pass
        self._problem(node, f"the tag '{node.tag}' is not read; a recipe holds plain values only.")
        return None

    def _plain_tag(self, node: Node, kind: str) -> None:
        if str(node.tag) != f"{_TAG}{kind}":
            self._problem(node, f"the tag '{node.tag}' is not read; a recipe holds plain values only.")

    def _place(self, node: Node) -> Place:
        return Place(self.rank, node.start_mark.line + 1, self.name, self.folder)

    def _problem(self, node: Node, text: str) -> None:
        self.problems.append(Problem(text, place=str(self._place(node))))


def _integer(text: str) -> int:
    digits = text.replace("_", "").lower()
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2], 10)
    return sign * int(digits[2:] if base != 10 else digits, base)


def _float(text: str) -> float:
    return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))


def _joined_surrogates(text: str) -> str:
    """JSON writes characters beyond the basic plane as two escapes; YAML reads each for itself."""
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _shown(key: Any) -> str:
    return repr(key) if isinstance(key, str) else "a list or mapping"
