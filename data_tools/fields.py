"""Columns as commands read them: text, or messages of which the text is wanted."""

from collections.abc import Mapping
from typing import Any

from data_tools.errors import RecordError


def text_of(record: Mapping[str, Any], names: str | tuple[str, ...], where: str) -> str:
    """The text of the first of the columns that the record has: text itself, or messages whose contents are joined.

    Raises: `RecordError`, beginning with `where`, if all are missing or the one found has no text.
    """
    value: Any = None
    for name in (names,) if isinstance(names, str) else names:
        value = record.get(name)
        if value is not None:
            break
    else:
        asked = " or ".join(f"'{name}'" for name in ((names,) if isinstance(names, str) else names))
        raise RecordError(f"{where}: column {asked} is missing.", reason="missing_column")
    text = _plain(value)
    if text is None:
        raise RecordError(f"{where}: column '{name}' must be text or messages with text.", reason="no_text")
    if not text.strip():
        raise RecordError(f"{where}: column '{name}' is empty.", reason="empty_text")
    return text


def optional_text(record: Mapping[str, Any], name: str) -> str | None:
    """The text of a column, a number as text, or None."""
    value = record.get(name)
    if isinstance(value, bool) or value is None:
        return None
    return str(value) if isinstance(value, int | float) else _plain(value)


def _plain(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        return None
    if len(value) == 1 and isinstance(value[0], dict) and isinstance(value[0].get("content"), str):
        return str(value[0]["content"])
    contents = [message.get("content") if isinstance(message, dict) else None for message in value]
    texts = [content for content in contents if isinstance(content, str)]
    return "\n".join(texts) if len(texts) == len(contents) else None
