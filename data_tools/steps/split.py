"""Splitters behind one interface: a text goes in, the spans of its steps come out, and no character is lost.

A step has a marker ("Step 2:", possibly empty) and a body. `prefix(k)` + `body(k)` + what follows is always the text.
Steps are counted from 1, as in the numbered form.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from data_tools.records import DataToolsError


class StepError(DataToolsError):
    """A text that a splitter cannot use."""


class Step(NamedTuple):
    """Where a step is: its marker begins at `start`, its body at `body`; `end` leaves white space behind it out."""

    start: int
    body: int
    end: int
    kind: str = "text"


@dataclass(frozen=True)
class Steps:
    """A text and its steps. What stands before the first step is the header, what stands behind the last the footer."""

    text: str
    steps: tuple[Step, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[str]:
        return (self.body(number) for number in range(1, len(self) + 1))

    @property
    def header(self) -> str:
        """The text before the first step."""
        return self.text[: self.steps[0].start] if self.steps else self.text

    @property
    def footer(self) -> str:
        """The text behind the last step."""
        return self.text[self.steps[-1].end :] if self.steps else ""

    def __getitem__(self, number: int) -> Step:
        if not 1 <= number <= len(self.steps):
            raise IndexError(f"there is no step {number}; steps are counted from 1 to {len(self.steps)}")
        return self.steps[number - 1]

    def prefix(self, number: int) -> str:
        """Everything before the body of a step, its marker included."""
        return self.text[: self[number].body]

    def body(self, number: int) -> str:
        """A step without its marker and without the white space behind it."""
        return self.text[self[number].body : self[number].end]

    def tail(self, number: int) -> str:
        """The body of a step and everything behind it."""
        return self.text[self[number].body :]

    def bodies(self, begin: int = 0) -> list[tuple[int, int]]:
        """The spans of the bodies that lie in `text[begin:]`, in its coordinates."""
        return [(step.body - begin, step.end - begin) for step in self.steps if step.body >= begin]


Splitter = Callable[[str], tuple[Step, ...]]

_MARKER = re.compile(r"^Step (\d{1,6}):", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE = re.compile(r"(?<=\.) +|\n\s*")
_ANSWER_ONLY = re.compile(
    r"\s*(?:####|\**(?:the )?(?:final )?answer(?: is)?\b|A:|\$*\\boxed\{)[^\n]*\s*\Z", re.IGNORECASE
)
_FENCE = re.compile(r"^```([\w+-]*)[^\n]*\n(.*?)^```[^\S\n]*$\n?", re.MULTILINE | re.DOTALL)


def split_steps(text: str, splitter: str = "auto") -> Steps:
    """The steps of a text by the splitter of that name.

    Raises: `StepError` for an unknown name, and for numbered steps that do not run 1, 2, 3 ... without a gap.
    """
    try:
        found = SPLITTERS[splitter]
    except KeyError:
        raise StepError(f"there is no splitter '{splitter}'. Splitters: {', '.join(SPLITTERS)}.") from None
    return Steps(text, found(text))


def numbered(text: str) -> tuple[Step, ...]:
    """`Step 1:`, `Step 2:`, ... at the beginning of a line; a step reaches to the next marker."""
    markers = list(_MARKER.finditer(text))
    for place, marker in enumerate(markers, start=1):
        if int(marker[1]) != place:
            raise StepError(f"steps must be numbered 1, 2, 3 ... without gaps; step {place} is called {marker[1]}.")
    ends = [marker.start() for marker in markers[1:]] + [len(text)] * bool(markers)
    return tuple(
        Step(marker.start(), marker.end(), marker.start() + len(text[marker.start() : end].rstrip()))
        for marker, end in zip(markers, ends, strict=True)
    )


def paragraphs(text: str) -> tuple[Step, ...]:
    """Blocks between empty lines."""
    return _between(text, _PARAGRAPH)


def lines(text: str) -> tuple[Step, ...]:
    """Lines that are not empty."""
    steps: list[Step] = []
    at = 0
    for line in text.split("\n"):
        body = line.strip()
        if body:
            start = at + line.index(body[0])
            steps.append(Step(start, start, start + len(body)))
        at += len(line) + 1
    return _without_answer(text, steps)


def sentences(text: str) -> tuple[Step, ...]:
    """Up to a full stop with a space behind it, or to the end of a line."""
    return _between(text, _SENTENCE)


def code_blocks(text: str) -> tuple[Step, ...]:
    """Text, code and execution results of a solution that computes with code, told apart by fences of backticks."""
    steps: list[Step] = []
    last = 0
    for fence in _FENCE.finditer(text):
        steps += _piece(text, last, fence.start(), "text")
        kind = "output" if fence[1] in ("output", "text", "result") else "code"
        steps += _piece(text, fence.start(), fence.end(), kind)
        last = fence.end()
    return (*steps, *_piece(text, last, len(text), "text"))


def auto(text: str) -> tuple[Step, ...]:
    """The first that gives at least two steps: numbered, code blocks, paragraphs, lines, sentences.

    Markers decide: a text with numbered steps is never split otherwise.
    """
    if "Step " in text and _MARKER.search(text):
        return numbered(text)
    if "```" in text and _FENCE.search(text):
        return code_blocks(text)
    if _PARAGRAPH.search(text) and len(steps := paragraphs(text)) > 1:
        return steps
    return steps if len(steps := lines(text)) > 1 else sentences(text)


SPLITTERS: dict[str, Splitter] = {
    "auto": auto,
    "numbered": numbered,
    "paragraph": paragraphs,
    "line": lines,
    "sentence": sentences,
    "code": code_blocks,
}
"""By name; every function gives the steps in the order of the text, without overlap."""


def _between(text: str, separator: re.Pattern[str]) -> tuple[Step, ...]:
    """The pieces between separators. A last piece that only states the answer is no step."""
    steps: list[Step] = []
    last = len(text) - len(text.lstrip())
    for found in separator.finditer(text, last):
        steps += _piece(text, last, found.start(), "text")
        last = found.end()
    steps += _piece(text, last, len(text), "text")
    return _without_answer(text, steps)


def _without_answer(text: str, steps: list[Step]) -> tuple[Step, ...]:
    if len(steps) > 1 and _ANSWER_ONLY.match(text, steps[-1].start):
        steps.pop()
    return tuple(steps)


def _piece(text: str, start: int, end: int, kind: str) -> list[Step]:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    end -= len(piece) - len(piece.rstrip())
    return [Step(start, start, end, kind)] if end > start else []
