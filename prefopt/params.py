"""Settings as frozen pydantic models, and their mistakes in our words.

Each hyperparameter is declared once, in a `Field`: default, range, description with its unit. The check at construction,
the error text, `prefopt losses NAME` and the JSON schema all come from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from prefopt.errors import ConfigError, Problem, did_you_mean


class Settings(BaseModel):
    """A frozen set of settings that refuses what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False, use_attribute_docstrings=True)

    @classmethod
    def build(cls, options: Mapping[str, Any], *, where: str = "") -> Self:
        """Settings from `options`; every mistake at once as a `ConfigError` whose problems keep the field's path.

        `where` starts each sentence, for instance `loss 'dpop'`.
        """
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            raise ConfigError(*problems(error, cls, where=where)) from None


class LossParams(Settings):
    """Base of every loss's hyperparameters."""


def problems(error: ValidationError, model: type[BaseModel], *, where: str = "") -> list[Problem]:
    """What pydantic found, as sentences for the person who wrote the settings. Paths are those of pydantic."""
    return [_problem(detail, model, where) for detail in error.errors(include_url=False)]


def _problem(detail: Any, model: type[BaseModel], where: str) -> Problem:
    path: tuple[str | int, ...] = tuple(detail["loc"])
    name = ".".join(str(part) for part in path)
    prefix = f"{where}: " if where else ""
    kind, given, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = sorted(_fields_at(model, path[:-1]))
        options = f" Options: {', '.join(known)}." if known else " It takes no options."
        return Problem(f"{prefix}unknown option '{name}'.{did_you_mean(str(path[-1]), known)}{options}", path)
    if kind == "missing":
        return Problem(f"{prefix}{name} is required and not given.", path)
    if kind == "value_error":
        return Problem(f"{prefix}{context.get('error', detail['msg'])}", path)
    return Problem(f"{prefix}{name} must be {_wanted(kind, context, detail['msg'])}; got {given!r}.", path)


_BOUNDS = {
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
_TYPES = {"bool": "true or false", "float": "a number", "int": "a whole number", "string": "text", "finite": "a finite number"}


def _wanted(kind: str, context: Mapping[str, Any], message: str) -> str:
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**context)
    if kind == "literal_error":
        return f"one of {context['expected']}"
    return _TYPES.get(kind.split("_")[0]) or message.removeprefix("Input should be ").removeprefix("a valid ")


def _fields_at(model: type[BaseModel], path: tuple[str | int, ...]) -> set[str]:
    """Names of the options at `path` below `model`, empty when the path leaves the tree of models."""
    current: Any = model
    for part in path:
        field = current.model_fields.get(part) if isinstance(current, type) and issubclass(current, BaseModel) else None
        current = _model_in(field.annotation) if field else None
    return set(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else set()


def _model_in(annotation: Any) -> Any:
    """The pydantic model inside an annotation such as `Model | None` or `list[Model]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = [_model_in(part) for part in getattr(annotation, "__args__", ())]
    return next((part for part in inner if part is not None), None)
