"""An example as text: what all responses share, each response behind it, and what of it is scored.

A chat template may render the same messages differently from one call to the next: a generation prompt that opens a
thinking block which the rendered answer lacks, earlier turns that lose their thinking once a later one follows, trimmed
text. So every place is looked up in the rendered conversation itself, and a row whose parts do not rebuild it is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from prefopt.data import rows
from prefopt.data.messages import REASONING, Message, is_plain, text_of
from prefopt.data.prompts import common_start
from prefopt.data.records import Example
from prefopt.data.rejection import RejectedError
from prefopt.data.template import ChatTemplate

Span = tuple[int, int]

_THINK, _END_THINK = "<think>", "</think>"
_TWICE = re.compile(rf"{_THINK}\s*{_END_THINK}\s*{_THINK}")
_HOLE = "holeXQ7holeXQ7"
"""Stands in for a message's text, so that its place can be found. Letters and digits: no template changes those."""


@dataclass(frozen=True)
class Side:
    """One response as text: `text` holds the context, then the response.

    `complete`: the response reaches the end of the answer. `closed`: the text ends with an end token already. `scored`:
    the characters that are scored, None for everything behind the context. `body`: where character 0 of the response as
    it was written stands in `text`; None when the template rewrote it.
    """

    text: str
    complete: bool
    closed: bool
    scored: tuple[Span, ...] | None = None
    body: int | None = None


@dataclass(frozen=True)
class Rendered:
    """A row as text. The text of each side begins with `context`."""

    context: str
    sides: tuple[Side, ...]
    is_chat: bool
    notes: tuple[str, ...] = ()


def render_text(example: Example, *, complete: bool, stops: tuple[str, ...]) -> Rendered:
    """Plain text, byte for byte. A response that already ends with one of `stops` is closed."""
    assert isinstance(example.prompt, str)
    context = example.prompt + (example.prefix or "")
    sides = [
        Side(context + response, complete=complete, closed=response.rstrip().endswith(stops), body=len(context))
        for response in example.responses
        if isinstance(response, str)
    ]
    return Rendered(context, tuple(sides), is_chat=False)


def render_chat(example: Example, template: ChatTemplate, *, complete: bool, all_turns: bool) -> Rendered:
    """Messages through the chat template. With `all_turns` every assistant turn of a response is scored, else the last
    one.

    Raises: `RejectedError` when the template refuses the messages, or their places cannot be found in what it renders.
    """
    conversation = _Conversation(example, template)
    broken_off = not complete and all(len(answer) == 1 and is_plain(answer[0]) for answer in conversation.answers)
    if example.prefix is not None or broken_off:
        return conversation.part(complete=complete)
    return conversation.whole(complete=complete, all_turns=all_turns)


def generation_prompt(example: Example, template: ChatTemplate) -> str:
    """What a model is given to answer the example's prompt, messages only."""
    return _Conversation(example, template).continued


class _Conversation:
    """An example of messages and its rendered forms."""

    def __init__(self, example: Example, template: ChatTemplate) -> None:
        assert isinstance(example.prompt, list)
        self.example, self.template, self.prompt = example, template, example.prompt
        self.answers = [response for response in example.responses if isinstance(response, list)]

    def whole(self, *, complete: bool, all_turns: bool) -> Rendered:
        """Answers of whole messages; not closed when they are not complete."""
        texts = [self._render([*self.prompt, *answer]) for answer in self.answers]
        if any(_spoils_thinking(answer, text) for answer, text in zip(self.answers, texts, strict=True)):
            return self._as_written("", complete=complete, notes=(rows.THINKING_RESTORED,))
        for answer, text in zip(self.answers, texts, strict=True):
            _check_shown(answer, text)
        context = self._context(texts)
        ends = [self.template.end_of_answer(text, len(context), complete=complete) for text in texts]
        sides = [
            Side(
                text[:end],
                complete=complete,
                closed=closed,
                scored=self._scored(answer, text[:end], len(context), all_turns) if len(answer) > 1 else None,
                body=_place(answer, text, len(context)),
            )
            for answer, text, (end, closed) in zip(self.answers, texts, ends, strict=True)
        ]
        several = any(sum(m["role"] == "assistant" for m in answer) > 1 for answer in self.answers)
        notes = (rows.TURNS_NOT_SCORED,) if several and not all_turns else ()
        return Rendered(context, tuple(sides), is_chat=True, notes=notes)

    def part(self, *, complete: bool) -> Rendered:
        """Responses that are part of one assistant turn: they continue a prefix, or break off."""
        prefix = self.example.prefix or ""
        if any(_THINK in prefix + text_of(answer[0]) for answer in self.answers):
            return self._as_written(prefix, complete=complete)
        self._check_plain()
        head, tail = self._hole([_assistant(prefix)], 0, behind=True)
        begun = self.example.prefix is not None or not head.startswith(self.generation)
        context = head if begun else self.generation
        if not complete:
            return self._parts(context, [head] * len(self.answers), tail, complete=False)
        texts = [self._render([*self.prompt, _assistant(prefix + text_of(answer[0]))]) for answer in self.answers]
        if not all(text.startswith(head) for text in texts):
            raise RejectedError(rows.BOUNDARY_MISMATCH, "the chat template rewrites the beginning of the answer")
        ends = [self.template.end_of_answer(text, len(head)) for text in texts]
        sides = [
            Side(text[:end], complete=True, closed=closed, body=len(head))
            for text, (end, closed) in zip(texts, ends, strict=True)
        ]
        return Rendered(context, tuple(sides), is_chat=True)

    def _as_written(self, prefix: str, *, complete: bool, notes: tuple[str, ...] = ()) -> Rendered:
        """Answers with thinking as a model writes them: templates drop thinking, or open a second block for it."""
        self._check_plain()
        bodies = [text_of(answer[0]) for answer in self.answers]
        heads = [_head(self.generation, prefix, body) for body in bodies]
        context = (
            heads[0]
            if prefix
            else common_start([self.generation, *(h + b for h, b in zip(heads, bodies, strict=True))])
        )
        tail = self._hole([_assistant("")], 0)[1]
        return self._parts(context, heads, tail, complete=complete, notes=notes)

    def _parts(
        self, context: str, heads: Sequence[str], tail: str, *, complete: bool, notes: tuple[str, ...] = ()
    ) -> Rendered:
        length, closed = self.template.end_of_answer(tail, 0, complete=complete)
        length = length if complete else 0
        sides = [
            Side(head + text_of(answer[0]) + tail[:length], complete=complete, closed=closed, body=len(head))
            for head, answer in zip(heads, self.answers, strict=True)
        ]
        return Rendered(context, tuple(sides), is_chat=True, notes=notes)

    def _check_plain(self) -> None:
        if any(len(answer) != 1 or not is_plain(answer[0]) for answer in self.answers):
            what = "a response that continues an answer, breaks it off, or thinks aloud"
            raise RejectedError(rows.BAD_MESSAGE, f"{what} must be one message of text")

    @cached_property
    def generation(self) -> str:
        """The prompt with the header of the assistant's turn."""
        return self._render(self.prompt, generate=True)

    @cached_property
    def continued(self) -> str:
        """What a model continues: the generation prompt, or the assistant turn that the prefix begins."""
        prefix = self.example.prefix
        if prefix is None:
            return self.generation
        if _THINK in prefix:
            return _head(self.generation, prefix, "")
        return self._hole([_assistant(prefix)], 0, behind=True)[0]

    @property
    def at_once(self) -> bool:
        """Whether each response begins with the assistant's turn."""
        return all(answer[0]["role"] == "assistant" for answer in self.answers)

    def _context(self, texts: Sequence[str]) -> str:
        """What all rendered conversations begin with, up to the end of the generation prompt or of the first header."""
        if self.at_once and all(text.startswith(self.generation) for text in texts):
            return self.generation
        heads = [self._hole(answer, 0)[0] for answer in self.answers]
        shared, prompt = common_start([*texts, *heads]), self._render(self.prompt)
        if any(head != shared for head in heads):  # headers differ, by role or by what follows
            if not shared.startswith(prompt):
                raise RejectedError(
                    rows.BOUNDARY_MISMATCH, "the chat template renders the prompt differently once a response follows"
                )
            shared = shared[: max(len(prompt), shared.rfind("\n") + 1)]
        return _asked(shared, self.generation, prompt) if self.at_once else shared

    def _scored(self, answer: Sequence[Message], text: str, begin: int, all_turns: bool) -> tuple[Span, ...]:
        """What the assistant writes of a response that begins at `begin`: its last turn, or all turns."""
        turns = [i for i, message in enumerate(answer) if message["role"] == "assistant"]
        return tuple(self._turn(answer, text, begin, i) for i in (turns if all_turns else turns[-1:]))

    def _turn(self, answer: Sequence[Message], text: str, begin: int, at: int) -> Span:
        """The characters of an assistant turn, from behind its header to its end token."""
        start = self._start_of_turn(answer, text, at) if at or not self.at_once else begin
        if at == len(answer) - 1:
            return start, len(text)
        limit = len(common_start([self._hole(answer, at + 1)[0], text]))  # the next message's text begins here
        if limit <= start:
            raise RejectedError(
                rows.BOUNDARY_MISMATCH, "the turns of a response cannot be told apart in the rendered conversation"
            )
        return start, self.template.end_of_turn(text, start, _reach(answer[at], text, start, limit), limit)

    def _start_of_turn(self, answer: Sequence[Message], text: str, at: int) -> int:
        before = replace(self.example, prompt=[*self.prompt, *answer[:at]])
        generation = _Conversation(before, self.template).generation
        if text.startswith(generation):
            return len(generation)
        head = self._hole(answer, at)[0]
        if not text.startswith(head):
            raise RejectedError(
                rows.BOUNDARY_MISMATCH, "a turn of the response cannot be found in the rendered conversation"
            )
        return len(_asked(head, generation, self._render([*self.prompt, *answer[:at]])))

    def _render(self, messages: Sequence[Message], *, generate: bool = False) -> str:
        return self.template.render(
            messages, tools=self.example.tools, variables=self.example.template_kwargs, generate=generate
        )

    def _hole(self, answer: Sequence[Message], at: int, *, behind: bool = False) -> tuple[str, str]:
        """The rendered conversation before and after the text of `answer[at]`, or with `behind` before and after its
        end.

        Raises: `RejectedError` when the template leaves the text out.
        """
        plain = {key: value for key, value in answer[at].items() if key in ("role", "name", "tool_call_id")}
        holed = plain | {"content": (text_of(answer[at]) if behind else "") + _HOLE}
        before, found, after = self._render([*self.prompt, *answer[:at], holed, *answer[at + 1 :]]).partition(_HOLE)
        if not found:
            raise RejectedError(rows.BOUNDARY_MISMATCH, "the chat template leaves out the text of a message")
        return before, after


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _place(answer: Sequence[Message], text: str, start: int) -> int | None:
    """Where character 0 of a response of one message stands in the rendered text; trimmed white space counts."""
    written = text_of(answer[-1])
    found = text.rfind(written.strip(), start)
    return None if len(answer) > 1 or found < 0 else found - (len(written) - len(written.lstrip()))


def _asked(header: str, generation: str, before: str) -> str:
    """As much of a rendered header as the generation prompt has; all of it when the two part within `before`."""
    asked = common_start([header, generation])
    return asked if asked.startswith(before) else header


def _reach(message: Message, text: str, start: int, limit: int) -> int:
    """How far what a message says reaches in rendered text, at least: its text, and the tool calls behind it."""
    said = [text_of(message).strip()]
    for call in message.get("tool_calls", []):
        function = call.get("function", call)
        arguments = function.get("arguments", {})
        said += [
            str(function.get("name", "")),
            *map(str, arguments.values() if isinstance(arguments, dict) else [arguments]),
        ]
    for words in said:
        found = text.find(words, start, limit)
        start = start if found < 0 else found + len(words)
    return start


def _spoils_thinking(answer: Sequence[Message], text: str) -> bool:
    """Whether an answer holds thinking that is not in the rendered text, or stands there behind an empty block."""
    thought, ended, _ = text_of(answer[-1]).partition(_END_THINK)
    thought = thought.rpartition(_THINK)[2].strip()
    return bool(ended and thought) and (thought not in text or bool(_TWICE.search(text)))


def _check_shown(answer: Sequence[Message], text: str) -> None:
    """Refuse an answer of which the template leaves out reasoning or tool calls, rather than train without them."""
    thoughts = [(name, str(answer[-1][name]).strip()) for name in REASONING if answer[-1].get(name)]
    missing = [name for name, thought in thoughts if thought not in text]
    calls = [call for message in answer for call in message.get("tool_calls", [])]
    names = [str(call.get("function", call).get("name", "")) for call in calls if isinstance(call, dict)]
    missing += ["tool_calls" for name in names if name not in text][:1]
    if missing:
        raise RejectedError(rows.BOUNDARY_MISMATCH, f"the chat template leaves out '{missing[0]}' of the answer")


def _head(generation: str, prefix: str, body: str) -> str:
    """What stands in front of `body` when a model writes `prefix` and `body`; a thinking block is not opened twice."""
    if generation.rstrip().endswith(_THINK) and (prefix + body).lstrip().startswith(_THINK):
        generation = generation[: generation.rindex(_THINK)]
    return generation + prefix
