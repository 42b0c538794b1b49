"""Columns as commands read them: text, or messages of which the text is wanted."""

from collections.abc import Mapping
from typing import Any

from data_tools.errors import RecordError
from data_tools.texts import plain


def text_of(record: Mapping[str, Any], names: str | tuple[str, ...], where: str) -> str:
    """The text of the first of the columns that the record has: text itself, or messages whose contents are joined.

    Raises: `RecordError`, beginning with `where`, if all are missing or the one found has no text.
    """
    return _text_of(record, names, where, one=False)


def response_of(record: Mapping[str, Any], names: str | tuple[str, ...], where: str) -> str:
    """Like `text_of`, of what one speaker says: one message at most, and not one of the user's."""
    return _text_of(record, names, where, one=True)


def optional_response(record: Mapping[str, Any], names: tuple[str, ...], where: str) -> str | None:
    """`response_of`, or None where all of the columns are missing."""
    there = tuple(name for name in names if record.get(name) not in (None, ""))
    return response_of(record, there, where) if there else None


def answer_of(record: Mapping[str, Any], where: str) -> str | None:
    """The right answer in column `answer`, a number as text; None if it is missing or empty.

    Raises: `RecordError`, beginning with `where`, for anything that is no answer.
    """
    value = record.get("answer")
    answer = optional_text(record, "answer")
    if value is not None and answer is None:
        found = f"got {type(value).__name__}"
        raise RecordError(f"{where}: column 'answer' must be text or a number; {found}.", reason="bad_answer")
    return answer if answer is not None and answer.strip() else None


def optional_text(record: Mapping[str, Any], name: str) -> str | None:
    """The text of a column, a number as text, or None."""
    value = record.get(name)
    if isinstance(value, bool) or value is None:
        return None
    return str(value) if isinstance(value, int | float) else _plain(value)


def _text_of(record: Mapping[str, Any], names: str | tuple[str, ...], where: str, *, one: bool) -> str:
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
    if one and not isinstance(value, str):
        _refuse_conversation(value, f"{where}: column '{name}'")
    if not text.strip():
        raise RecordError(f"{where}: column '{name}' is empty.", reason="empty_text")
    return text


def _refuse_conversation(messages: list[Mapping[str, Any]], begins: str) -> None:
    """Raises: `RecordError` for messages that are more than one answer."""
    roles = [str(message.get("role", "assistant")) for message in messages]
    if len(roles) > 1 or roles[0] != "assistant":
        said = f"must be one answer; it has messages of {', '.join(roles[:5])}"
        raise RecordError(f"{begins} {said}. `convert` takes conversations apart.", reason="several_messages")


def _plain(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        return None
    if len(value) == 1 and isinstance(value[0], dict) and isinstance(value[0].get("content"), str):
        return str(value[0]["content"])  # the usual case
    return plain(value) if all(isinstance(message, Mapping) for message in value) else None
