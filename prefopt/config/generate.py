"""Write `_training_arguments.json` from the installed transformers: `python -m prefopt.config.generate`."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any

_LIST_FILE = Path(__file__).with_name("_training_arguments.json")
_KINDS = {bool: "bool", int: "int", float: "float", str: "str", list: "list", dict: "dict", types.NoneType: "null"}
_ORDER = ["bool", "int", "float", "str", "list", "dict", "null"]


def training_arguments() -> dict[str, Any]:
    """Version of transformers, and name -> kinds, default, choices of each of its training arguments."""
    import transformers

    hints = typing.get_type_hints(transformers.TrainingArguments)
    fields = dataclasses.fields(transformers.TrainingArguments)
    return {
        "transformers": ".".join(transformers.__version__.split(".")[:2]),
        "arguments": {
            field.name: _argument(field, hints[field.name]) for field in sorted(fields, key=lambda f: f.name)
        },
    }


def _argument(field: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    kinds, choices = _kinds(hint)
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    else:
        default = None if field.default is dataclasses.MISSING else field.default
    if default is None:
        kinds.add("null")
    entry: dict[str, Any] = {"kinds": [kind for kind in _ORDER if kind in kinds], "default": default}
    return entry | ({"choices": choices} if choices else {})


def _kinds(hint: Any) -> tuple[set[str], list[str]]:
    """The kinds of YAML value a type hint accepts, and the values of an enumeration in it."""
    if hint is Any:
        return set(_ORDER), []
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"str"}, [str(item.value) for item in hint]
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return {_KINDS[type(value)] for value in typing.get_args(hint)}, []
    if origin in (typing.Union, types.UnionType):
        parts = [_kinds(part) for part in typing.get_args(hint)]
        return set().union(*(kinds for kinds, _ in parts)), [c for _, choices in parts for c in choices]
    kind = _KINDS.get(origin or hint)
    return ({kind} if kind else set()), []


def main() -> None:
    """Write the file."""
    text = json.dumps(training_arguments(), indent=1, ensure_ascii=False) + "\n"
    _LIST_FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
