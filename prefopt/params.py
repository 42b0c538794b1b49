"""Settings as frozen pydantic models, and their mistakes in our words.

Each hyperparameter is declared once, in a `Field`: default, range, description with its unit. The check at
construction, the error text, `prefopt losses NAME` and the JSON schema all come from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Self, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from prefopt.errors import ConfigError, Problem, did_you_mean

KeyPath = tuple[str | int, ...]
"""A place inside settings, for instance `("data", "train", 0, "path")`."""


class Settings(BaseModel):
    """A frozen set of settings that refuses what it does not know.

    Strict: `"0.1"` is text and no number, `1` is not true. A list is accepted where a tuple is declared, because files
    have only lists.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def build(cls, options: Mapping[str, Any], *, where: str = "") -> Self:
        """Settings from `options`; every mistake at once as a `ConfigError` whose problems keep the field's path.

        `where` starts each sentence, for instance `loss 'dpop'`.
        """
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            raise ConfigError(*problems(error, cls, where=where)) from None

    @model_validator(mode="before")
    @classmethod
    def _lists_as_tuples(cls, options: Any) -> Any:
        if not isinstance(options, Mapping):
            return options
        tuples = {name for name, field in cls.model_fields.items() if get_origin(field.annotation) is tuple}
        return {k: tuple(v) if k in tuples and isinstance(v, list) else v for k, v in options.items()}


class LossParams(Settings):
    """Base of every loss's hyperparameters."""

    def unused(self) -> Mapping[str, str]:
        """Hyperparameters that have no effect beside the others' values, each with what would read it.

        They are refused where they are written: `{"alpha": "only divergence: alpha reads it"}`.
        """
        return {}

    @model_validator(mode="after")
    def _refuse_unused(self) -> Self:
        for name, why in self.unused().items():
            if name in self.model_fields_set:
                raise ValueError(f"{name} has no effect here: {why}.")
        return self

    def written(self) -> dict[str, Any]:
        """The hyperparameters as they can be written down again, those without effect left out."""
        return self.model_dump(exclude=set(self.unused()))


def unit_of(description: str) -> str:
    """The unit at the end of a field's description, after the last comma; empty when there is none.

    >>> unit_of("pull towards the reference, 1/nat")
    '1/nat'
    """
    last = description.rpartition(", ")[2].strip()
    return last if _UNIT.fullmatch(last) else ""


_WORDS = r"(nats?|tokens?|steps?|rows?|prompts?|responses?|characters?|bytes?|seconds?)"
_UNIT = re.compile(rf"dimensionless|(1/)?{_WORDS}((/| per ){_WORDS})?")
_COUNTED = {"tokens", "steps", "rows", "prompts", "responses", "characters", "bytes", "seconds"}


def problems(
    error: ValidationError,
    model: type[BaseModel],
    *,
    where: str = "",
    rename: Callable[[KeyPath], KeyPath] = lambda path: path,
    advice: Callable[[KeyPath], str | None] = lambda path: None,
) -> list[Problem]:
    """What pydantic found, as sentences for the person who wrote the settings.

    `rename` turns pydantic's path of a field into the one that was written; the problems carry that one. `advice` may
    have a better sentence than a guess for an unknown option, for instance what another program's name is here.
    """
    return [_problem(detail, model, where, rename, advice) for detail in error.errors(include_url=False)]


def _problem(
    detail: Any,
    model: type[BaseModel],
    where: str,
    rename: Callable[[KeyPath], KeyPath],
    advice: Callable[[KeyPath], str | None],
) -> Problem:
    path: KeyPath = rename(tuple(detail["loc"]))
    name = ".".join(map(str, path))
    prefix = f"{where}: " if where else ""
    kind, given, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = _fields_at(model, tuple(detail["loc"])[:-1])
        return Problem(f"{prefix}{advice(path) or unknown_option(path, known)}", path)
    if kind == "missing":
        return Problem(f"{prefix}{name} is required and not given.", path)
    if kind == "value_error":
        subject = f"{name} " if path else ""
        return Problem(f"{prefix}{subject}{context.get('error', detail['msg'])}", path)
    if kind in {"string_too_short", "too_short"}:
        return Problem(f"{prefix}{name} must not be empty.", path)
    unit = _counted_unit(model, tuple(detail["loc"])) if kind in _BOUNDS else ""
    wanted = _wanted(kind, context, detail["msg"])
    guess = did_you_mean(given, _CHOICES.findall(wanted)) if kind == "literal_error" and isinstance(given, str) else ""
    return Problem(f"{prefix}{name} must be {wanted}{unit}; got {shown(given)}.{guess}", path)


def unknown_option(path: KeyPath, known: Mapping[str, Any] | set[str]) -> str:
    """`loss: unknown option 'lambda'. Did you mean 'lam'? Options: beta, lam.`"""
    above = f"{'.'.join(map(str, path[:-1]))}: " if path[:-1] else ""
    options = f"Options: {', '.join(sorted(known))}." if known else "It takes no options."
    return f"{above}unknown option '{path[-1]}'.{did_you_mean(str(path[-1]), known)} {options}"


def shown(value: Any) -> str:
    """A value as it is written in a recipe, cut to a readable length."""
    words = {"None": "null", "True": "true", "False": "false"}
    text = words.get(repr(value), repr(value))
    return text if len(text) <= 80 else f"{text[:77]}..."


_BOUNDS = {
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
}
_TYPES = {
    "bool": "true or false",
    "dict": "a mapping",
    "finite": "a finite number",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "model": "a mapping",
    "string": "text",
    "tuple": "a list",
}
_CHOICES = re.compile(r"'([^']*)'")


def _wanted(kind: str, context: Mapping[str, Any], message: str) -> str:
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**context)
    if kind == "literal_error":
        return f"one of {context['expected']}" if " or " in str(context["expected"]) else str(context["expected"])
    return _TYPES.get(kind.split("_")[0]) or message.removeprefix("Input should be ").removeprefix("a valid ")


def _counted_unit(model: type[BaseModel], path: KeyPath) -> str:
    """` tokens`, for a field whose values are numbers of something."""
    above = _model_at(model, path[:-1])
    field = above.model_fields.get(str(path[-1])) if above and path else None
    unit = unit_of(field.description or "") if field else ""
    return f" {unit}" if unit in _COUNTED else ""


def _fields_at(model: type[BaseModel], path: KeyPath) -> set[str]:
    """Names of the options at `path` below `model`, empty when the path leaves the tree of models."""
    found = _model_at(model, path)
    return set(found.model_fields) if found else set()


def _model_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    annotation: Any = model
    for part in path:
        above = _model_in(annotation)
        if above is None:
            return None
        if part in above.model_fields:
            annotation = above.model_fields[str(part)].annotation
        # else an index or a key of a container, whose items are what `_model_in` finds
    return _model_in(annotation)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The pydantic model inside an annotation such as `Model | None`, `tuple[Model, ...]` or `dict[str, Model]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = [_model_in(part) for part in getattr(annotation, "__args__", ())]
    return next((part for part in inner if part is not None), None)
