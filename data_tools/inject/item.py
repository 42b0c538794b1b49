"""A solution that errors are injected into, and an injected error."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, Protocol

from data_tools.equations import Reading, Value, Verdict, judge, read_equations
from data_tools.equations.plain import plainly_true
from data_tools.inject.background import Background, numbers_in
from data_tools.inject.changes import Scene
from data_tools.inject.edits import Span
from data_tools.steps import Steps

Mode = Literal["step", "suffix", "full"]
Verified = Literal["equation", "answer", "tests", "judge", "none"]


_SIGN_WORDS = ("plus", "minus", "times", "divided by")
_NOTHING = Reading("", 0, 0, [], [])


@dataclass(frozen=True)
class SolutionItem:
    """A problem and its right solution in steps. `id` keys everything that is random about it."""

    id: str
    prompt: str
    steps: Steps
    answer: str | None = None
    _readings: dict[int, Reading] = field(default_factory=dict, init=False, repr=False, compare=False)
    _scenes: dict[int, list[tuple[int, Scene]]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def background(self) -> Background:
        """Numbers and notation of problem and solution."""
        return Background(self.prompt, self.steps.text)

    @cached_property
    def _spells_signs(self) -> bool:
        text = self.steps.text
        return "\\" in text or any(word in text for word in _SIGN_WORDS)

    def may_have(self, patterns: Sequence[re.Pattern[str]], number: int | None = None) -> bool:
        """Whether a step, or some step, has all the patterns. They know operators as signs; spelt ones are presumed."""
        text, begin, end = self.steps.text, 0, len(self.steps.text)
        if number is not None:
            step = self.steps[number]
            begin, end = step.body, step.end
        for pattern in patterns:
            if not pattern.search(text, begin, end):
                return self._spells_signs
        return True

    def reading(self, number: int) -> Reading:
        """The equations of a step."""
        if number not in self._readings:
            step, text = self.steps[number], self.steps.text
            silent = text.find("=", step.body, step.end) < 0 and text.find("equal", step.body, step.end) < 0
            self._readings[number] = _NOTHING if silent else read_equations(text, step.body, step.end)
        return self._readings[number]

    def scenes(self, number: int) -> list[tuple[int, Scene]]:
        """The equations of a step that can be edited, with their places among all; none if one of them is false."""
        if number not in self._scenes:
            equations = self.reading(number).equations
            sites = [equation.site for equation in equations]
            if None in sites and self.is_false(number):
                sites = []
            step = self.steps.body(number) if sites else ""
            self._scenes[number] = [
                (at, Scene(site, self.background, step)) for at, site in enumerate(sites) if site is not None
            ]
        return self._scenes[number]

    def is_false(self, number: int) -> bool:
        """Whether a step has an equation that is surely false."""
        if number not in self._readings:
            step = self.steps[number]
            if plainly_true(self.steps.text, step.body, step.end):  # the usual case, and no reading is built for it
                return False
        return any(judge(equation) is Verdict.FALSE for equation in self.reading(number).equations)

    def reading_from(self, number: int) -> Reading:
        """The equations from the body of a step to the end of the text."""
        if -number not in self._readings:
            self._readings[-number] = read_equations(self.steps.text, self.steps[number].body)
        return self._readings[-number]

    def known_before(self, number: int) -> tuple[Value, ...]:
        """Numbers of the problem and of the steps before one, for mistaken substitution."""
        earlier = numbers_in(self.steps.text, 0, self.steps[number].start)
        return tuple(dict.fromkeys((*self.background.numbers, *earlier[-12:])))


@dataclass(frozen=True)
class Injection:
    """One error in one step. Texts and spans begin at the body of the step.

    `edited_tail` is the rest of the solution from there with everything that follows from the error, or None where it
    was not asked for. `spans_old` and `spans_new` are what differs, in the original and in the edited text.
    """

    step: int
    kind: str
    edited_step: str
    edited_tail: str | None
    spans_old: tuple[Span, ...]
    spans_new: tuple[Span, ...]
    old_value: str = ""
    new_value: str = ""
    answer_after: str | None = None
    verified: Verified = "none"
    meta: Mapping[str, Any] = field(default_factory=dict)


class ErrorInjector(Protocol):
    """Makes wrong steps out of right ones."""

    name: str
    version: int

    def inject(self, item: SolutionItem, rng: random.Random) -> list[Injection]:
        """The errors made in one solution; an empty list where none can be made and verified.

        Everything random comes from `rng`, so that a solution gets the same errors in any order and any shard.
        """
        ...


def row_random(seed: int, row_id: str, stage: str, attempt: int = 0) -> random.Random:
    """The random source of one row at one stage: the same wherever and whenever the row is worked on."""
    key = blake2b(f"{seed}|{row_id}|{stage}|{attempt}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return random.Random(int(key, 16))
