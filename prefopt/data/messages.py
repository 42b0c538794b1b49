"""Messages: what counts as one, and how they are cleaned before a chat template sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefopt.data import rows
from prefopt.data.rejection import RejectedError

Message = dict[str, Any]

REASONING = ("reasoning_content", "thinking", "reasoning")
"""Keys under which templates look for a message's thinking."""

_BESIDE_CONTENT = ("tool_calls", *REASONING)


def check_messages(value: list[Any], column: str) -> list[Message]:
    """The conversation in `value` with nulls removed and content as text.

    A message needs a `role`, and `content` unless it calls tools or holds reasoning. A list of text parts counts as
    text.
    Raises: `RejectedError` with the column and the number of the message.
    """
    return [_message(item, f"message {number} of '{column}'") for number, item in enumerate(value, start=1)]


def _message(value: Any, where: str) -> Message:
    if not isinstance(value, Mapping):
        raise RejectedError(
            rows.BAD_MESSAGE, f"{where} must be an object with 'role' and 'content'; got {type(value).__name__}"
        )
    message: Message = without_nulls(value)
    if not isinstance(message.get("role"), str):
        hint = (
            " ('from' and 'value' are another format: rename them to 'role' and 'content')" if "from" in value else ""
        )
        raise RejectedError(rows.BAD_MESSAGE, f"{where} has no 'role'{hint}")
    if "content" in message:
        return message | {"content": _content(message["content"], where)}
    if any(message.get(name) for name in _BESIDE_CONTENT):
        return message | {"content": ""}  # templates read the content of such a message as text
    if "content" in value:
        raise RejectedError(rows.NULL_FIELD, f"{where} has content null")
    raise RejectedError(rows.BAD_MESSAGE, f"{where} has no 'content' and calls no tools")


def _content(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(
        isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in value
    ):
        return "".join(part["text"] for part in value)
    raise RejectedError(rows.BAD_MESSAGE, f"{where}: 'content' must be text or a list of text parts")


def text_of(message: Message) -> str:
    """The text of a checked message."""
    return str(message["content"])


def says_nothing(message: Message) -> bool:
    """Whether a message has neither text nor anything beside it."""
    return not text_of(message).strip() and not any(message.get(name) for name in _BESIDE_CONTENT)


def is_plain(message: Message) -> bool:
    """Whether a message's text is all that it says."""
    return not any(message.get(name) for name in _BESIDE_CONTENT)


def wrapped(text: str, role: str) -> list[Message]:
    """A text as a conversation of one message."""
    return [{"role": role, "content": text}]


def without_nulls(value: Any) -> Any:
    """`value` without keys whose value is null, at any depth: Arrow adds them to make records alike."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
