"""Implied prompts: what all responses begin with. Text splits between words, conversations between messages."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from prefopt.data import rows
from prefopt.data.messages import Message
from prefopt.data.rejection import RejectedError


def split_text(texts: Sequence[str]) -> tuple[str, list[str]]:
    """The common beginning of all texts, up to a word's end, and the rest of each.

    `The cat`, `The car` -> `The` and ` cat`, ` car`: a space belongs to the word that follows it. A single text is all
    response.
    """
    if len(texts) < 2:
        return "", list(texts)
    end = _between_words(common_start(texts), texts)
    return texts[0][:end], [text[end:] for text in texts]


def common_start(texts: Sequence[str]) -> str:
    """What all texts begin with, character by character."""
    first, last = min(texts), max(texts)  # every other text lies between these two
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]


def _between_words(common: str, texts: Sequence[str]) -> int:
    end = len(common)
    while end > 0 and any(_inside_word(text, end) for text in texts):
        end -= 1
    # the space in front of the words that differ goes with them, as tokenizers have it
    if end > 0 and common[end - 1] == " " and all(len(text) > end and not text[end].isspace() for text in texts):
        end -= 1
    return end


def _inside_word(text: str, at: int) -> bool:
    """Whether a cut in front of `text[at]` would part what belongs together: a word, a number, an accented letter."""
    if at >= len(text):
        return False
    before, after = text[at - 1], text[at]
    if (
        unicodedata.combining(after)
        or after in "\u200d\ufe0f"
        or before == "\u200d"
        or "\U0001f3fb" <= after <= "\U0001f3ff"
    ):
        return True
    return _of_word(before) and _of_word(after)


def _of_word(character: str) -> bool:
    # scripts that are written without spaces can be cut between any two letters
    return (character.isalnum() or character == "_") and unicodedata.east_asian_width(character) not in ("W", "F")


def split_messages(
    prompt: list[Message], conversations: list[list[Message]], names: Sequence[str]
) -> tuple[list[Message], list[list[Message]]]:
    """Prompt messages and the messages of each response.

    Without a prompt it is what all conversations begin with; of a single one, all but the last message. A prompt that
    the conversations repeat is taken off them; what they have in common beyond it is added to it.
    Raises: `RejectedError` when the conversations do not begin alike or with another prompt than the one given, or a
    response does not end with the assistant.
    """
    common = _common(conversations)
    repeated = _end_of(prompt, conversations[0][:common])
    if len(conversations) == 1 and prompt:
        common = repeated
    shared = conversations[0][:common]
    if prompt and not repeated and shared and shared[0] == prompt[0]:
        raise RejectedError(rows.BAD_MESSAGE, "the responses repeat the beginning of the prompt, but not all of it")
    if prompt and not repeated and prompt[-1]["role"] == "user" and all(map(_begins_anew, conversations)):
        raise RejectedError(
            rows.BAD_MESSAGE,
            f"the prompt ends with a 'user' message, and '{names[0]}' begins with a '{conversations[0][0]['role']}' "
            "message without repeating the prompt as it stands: the prompt would be there twice",
        )
    start = shared if repeated else prompt + shared
    if not start:
        raise RejectedError(
            rows.BAD_MESSAGE, f"there is no prompt, and no first message that {' and '.join(names[:2])} have in common"
        )
    rest = [conversation[common:] for conversation in conversations]
    for conversation, name in zip(rest, names, strict=True):
        if conversation and conversation[-1]["role"] != "assistant":
            raise RejectedError(
                rows.BAD_MESSAGE,
                f"the last message of '{name}' is from '{conversation[-1]['role']}', not from the assistant",
            )
    return start, rest


def _begins_anew(conversation: list[Message]) -> bool:
    """Whether a conversation begins as prompts do, not as answers to one."""
    return bool(conversation) and conversation[0]["role"] in ("user", "system")


def _common(conversations: Sequence[list[Message]]) -> int:
    """How many messages all conversations begin with; of a single one, all but the last."""
    if len(conversations) == 1:
        return max(len(conversations[0]) - 1, 0)
    shortest = min(map(len, conversations))
    return next((i for i in range(shortest) if any(c[i] != conversations[0][i] for c in conversations)), shortest)


def _end_of(prompt: list[Message], shared: list[Message]) -> int:
    """Where the prompt ends inside messages that hold it, behind a system message perhaps; 0 when they do not."""
    if not prompt or not shared or shared[0]["role"] == "assistant":
        return 0
    places = range(len(shared) - len(prompt) + 1)
    return next((at + len(prompt) for at in places if shared[at : at + len(prompt)] == prompt), 0)
