"""Shapes with turns: ShareGPT, transcripts with "Human:" and "Assistant:", and pairs of messages."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from data_tools.reading import Record
from data_tools.shapes.shape import Message, Source, message
from data_tools.texts import is_messages, plain, shared_messages

ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
}
_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant):[^\S\n]?")


def sharegpt(source: Source) -> Iterator[Record]:
    """`conversations` of `from` and `value`: a pair if `chosen` and `rejected` are there, else the last answer."""
    turns = _turns(source, source.record["conversations"], "conversations")
    system = source.record.get("system")
    if isinstance(system, str) and system:
        turns = [message("system", system), *turns]
    if "chosen" in source.record and "rejected" in source.record:
        sides = {name: _side(source, name) for name in ("chosen", "rejected")}
        yield {"prompt": _open(source, turns), **sides}
        return
    if turns[-1]["role"] != "assistant":
        raise source.refuse("no_response", "the conversation does not end with an answer.")
    yield {"prompt": _open(source, turns[:-1]), "completion": turns[-1:], **source.label("kto_tag")}


def transcript(source: Source) -> Iterator[Record]:
    """Two transcripts ("\\n\\nHuman: ...\\n\\nAssistant: ...") that differ in the last answer."""
    chosen, rejected = (_parsed(source, name) for name in ("chosen", "rejected"))
    shared = shared_messages(chosen, rejected)
    if any(len(turns) != shared + 1 or turns[-1]["role"] != "assistant" for turns in (chosen, rejected)):
        raise source.refuse("contexts_differ", "the transcripts differ in more than the last answer.")
    yield {"prompt": _open(source, chosen[:shared]), "chosen": chosen[shared:], "rejected": rejected[shared:]}


def is_transcript(record: Mapping[str, Any]) -> bool:
    """Whether both sides are transcripts."""
    sides = (record.get("chosen"), record.get("rejected"))
    return all(isinstance(text, str) and text.lstrip("\n").startswith("Human:") for text in sides)


def pair(source: Source) -> Iterator[Record]:
    """Rows in our own shape: text stays; of messages, those that both sides share become the prompt."""
    chosen, rejected = source.record["chosen"], source.record["rejected"]
    for name in ("chosen", "rejected"):
        if plain(source.record[name]) is None:
            raise source.refuse("no_text", f"column '{name}' must be text or messages with text.")
    if not (is_messages(chosen) and is_messages(rejected)):
        yield {name: source.record[name] for name in ("prompt", "chosen", "rejected") if name in source.record}
        return
    cut = shared_messages(chosen, rejected)
    given = source.record.get("prompt")
    if cut == 0 and given is None:
        raise source.refuse("contexts_differ", "'chosen' and 'rejected' share no message, and there is no prompt.")
    prompt = given if cut == 0 else chosen[:cut]
    yield {"prompt": prompt, "chosen": chosen[cut:], "rejected": rejected[cut:]}


def _parsed(source: Source, name: str) -> list[Message]:
    text = source.text(name)
    found = list(_TURN.finditer(text))
    if not found or text[: found[0].start()].strip():
        raise source.refuse("no_transcript", f"column '{name}' does not begin with 'Human:'.")
    ends = [turn.start() for turn in found[1:]] + [len(text)]
    roles = {"Human": "user", "Assistant": "assistant"}
    turns = [message(roles[turn[1]], text[turn.end() : end]) for turn, end in zip(found, ends, strict=True)]
    if any(a["role"] == b["role"] for a, b in pairwise(turns)):
        raise source.refuse("no_transcript", f"column '{name}' has two turns of one speaker in a row.")
    return turns


def _turns(source: Source, value: Any, name: str) -> list[Message]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise source.refuse("bad_message", f"column '{name}' must be a list of turns.")
    return [_turn(source, item, name) for item in value]


def _turn(source: Source, item: Any, name: str) -> Message:
    """A turn of ShareGPT (`from`, `value`) or of messages (`role`, `content`)."""
    if isinstance(item, Mapping):
        who, said = item.get("from", item.get("role")), item.get("value", item.get("content"))
        if isinstance(who, str) and who in ROLES and isinstance(said, str):
            return message(ROLES[who], said)
        if isinstance(who, str) and who not in ROLES:
            raise source.refuse("bad_message", f"column '{name}' has a turn of '{who}'. Known: {', '.join(ROLES)}.")
    raise source.refuse("bad_message", f"column '{name}' has a turn without speaker or text.")


def _side(source: Source, name: str) -> list[Message]:
    value = source.record[name]
    if isinstance(value, str):
        return [message("assistant", value)]
    turns = _turns(source, value if isinstance(value, list) else [value], name)
    if turns[0]["role"] != "assistant":
        raise source.refuse("bad_message", f"column '{name}' must be an answer of the assistant.")
    return turns


def _open(source: Source, turns: list[Message]) -> list[Message]:
    """A conversation that waits for an answer."""
    if not turns or turns[-1]["role"] not in ("user", "tool"):
        raise source.refuse("bad_message", "the prompt must end with a turn of the user.")
    return turns
