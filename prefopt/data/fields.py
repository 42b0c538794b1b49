"""Columns of a record, each checked for what it must hold; `RejectedError` names a column that cannot be read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from prefopt.data import rows
from prefopt.data.messages import without_nulls
from prefopt.data.rejection import RejectedError

Spans = tuple[tuple[int, int], ...]

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_OURS = (
    "conversation",
    "messages",
    "tokenize",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "tools",
)


def needed(record: Mapping[str, Any], name: str) -> Any:
    """The column's value, which must be there."""
    value = record.get(name)
    if value is None:
        raise RejectedError(
            rows.NULL_FIELD, f"column '{name}' " + ("holds nothing" if name in record else "is missing")
        )
    return value


def text_or_none(record: Mapping[str, Any], name: str) -> str | None:
    """Text, or None when there is none."""
    value = record.get(name)
    if value is not None and not isinstance(value, str):
        raise RejectedError(rows.BAD_MESSAGE, f"column '{name}' must be text; got {type(value).__name__}")
    return value


def flag(record: Mapping[str, Any], name: str) -> bool | None:
    """True, false, or None when there is none. Words and numbers count, as CSV and other tools write them."""
    value = record.get(name)
    if value is None or isinstance(value, bool):
        return value
    word = str(value).strip().lower().removesuffix(".0")
    if not word:
        return None
    if word not in _TRUE + _FALSE:
        raise RejectedError(rows.BAD_MESSAGE, f"column '{name}' must be true or false; got {value!r}")
    return word in _TRUE


def number(value: Any, name: str) -> float:
    """A finite number."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise RejectedError(rows.BAD_MESSAGE, f"column '{name}' must hold numbers; got {value!r}") from None
    if not math.isfinite(found):
        raise RejectedError(rows.NONFINITE, f"column '{name}' holds {found}")
    return found


def tools(record: Mapping[str, Any]) -> list[Any] | None:
    """The tools that the chat template is told of."""
    value = parsed(record.get("tools"), "tools")
    if value is not None and not isinstance(value, list):
        raise RejectedError(rows.BAD_MESSAGE, f"column 'tools' must be a list; got {type(value).__name__}")
    return without_nulls(value) or None


def template_kwargs(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Variables for the chat template, such as `enable_thinking`."""
    value = parsed(record.get("chat_template_kwargs"), "chat_template_kwargs")
    if value is not None and not isinstance(value, Mapping):
        raise RejectedError(
            rows.BAD_MESSAGE, f"column 'chat_template_kwargs' must be a mapping; got {type(value).__name__}"
        )
    taken = [key for key in value or {} if key in _OURS]
    if taken:
        raise RejectedError(rows.BAD_MESSAGE, f"column 'chat_template_kwargs' cannot set '{taken[0]}'")
    return without_nulls(value or {})  # type: ignore[no-any-return]


def whole(value: Any, name: str) -> int:
    """A whole number."""
    found = number(value, name)
    if found != int(found):
        raise RejectedError(rows.BAD_MESSAGE, f"column '{name}' must hold whole numbers; got {value!r}")
    return int(found)


def spans(value: Any, name: str) -> Spans:
    """Character spans `[start, end)`, in order, none reaching into the next."""
    try:
        found = tuple((int(start), int(end)) for start, end in parsed(value, name))
    except (TypeError, ValueError):
        raise RejectedError(
            rows.BAD_MESSAGE, f"column '{name}' must be a list of [start, end) character spans"
        ) from None
    edges = [edge for span in found for edge in span]
    if edges != sorted(edges) or (edges and edges[0] < 0):
        raise RejectedError(
            rows.BAD_MESSAGE, f"column '{name}' must hold spans in order, 0 <= start <= end, none within another"
        )
    return found


def parsed(value: Any, name: str) -> Any:
    """A structured column, which may come as JSON text; CSV has nothing else."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except ValueError:
        raise RejectedError(rows.BAD_MESSAGE, f"column '{name}' is text that is not JSON") from None
