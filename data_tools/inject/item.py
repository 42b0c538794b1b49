"""A solution that errors are injected into, and an injected error."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from data_tools.equations import Reading, Value, Verdict, judge, read_equations
from data_tools.equations.parse import read_tokens
from data_tools.equations.plain import Match, equations_from, plain_matches, plain_sums
from data_tools.inject.background import Background, numbers_in
from data_tools.inject.changes import Scene
from data_tools.inject.edits import Span
from data_tools.inject.kinds import Kind, signs_in
from data_tools.lazy import lazy
from data_tools.steps import Steps

Mode = Literal["step", "suffix", "full"]
Verified = Literal["equation", "answer", "tests", "judge", "none"]


_SIGN_WORDS = ("plus", "minus", "times", "divided by")


@dataclass(frozen=True)
class SolutionItem:
    """A problem and its right solution in steps. `id` keys everything that is random about it."""

    id: str
    prompt: str
    steps: Steps
    answer: str | None = None
    _readings: dict[int, Reading] = field(default_factory=dict, init=False, repr=False, compare=False)
    _scenes: dict[tuple[int, bool], list[tuple[int, Scene]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _matches: dict[int, list[Match] | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _operators: dict[int, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    @lazy
    def background(self) -> Background:
        """Numbers and notation of problem and solution."""
        return Background(self.prompt, self.steps.text)

    @lazy
    def _spells_signs(self) -> bool:
        text = self.steps.text
        return "\\" in text or any(word in text for word in _SIGN_WORDS)

    def may_have(self, kind: Kind, number: int | None = None) -> bool:
        """Whether a step, or some step, may take a kind of error, by its signs and hints. Spelt signs are presumed."""
        text, begin, end = self.steps.text, 0, len(self.steps.text)
        if number is not None:
            step = self.steps.steps[number - 1]
            begin, end = step.body, step.end
        if kind.signs is not None and not kind.signs.search(self._signs(number or 0, begin, end)):
            return self._spells_signs
        for pattern in kind.hints:
            if not pattern.search(text, begin, end):
                return self._spells_signs
        return True

    def _signs(self, number: int, begin: int, end: int) -> str:
        """The operators of a step, or of all for number 0."""
        signs = self._operators.get(number)
        if signs is None:
            signs = self._operators[number] = signs_in(self.steps.text, begin, end)
        return signs

    def reading(self, number: int) -> Reading:
        """The equations of a step."""
        reading = self._readings.get(number)
        if reading is None:
            step, text = self.steps.steps[number - 1], self.steps.text
            matches = self._plain(number)
            if matches is None:
                reading = read_tokens(text, step.body, step.end)
            else:
                reading = Reading(text, step.body, step.end, equations_from(text, step.end, matches), [])
            self._readings[number] = reading
        return reading

    def _plain(self, number: int) -> list[Match] | None:
        """The equations of a step where all are plain."""
        if number not in self._matches:
            step = self.steps.steps[number - 1]
            self._matches[number] = plain_matches(self.steps.text, step.body, step.end)
        return self._matches[number]

    def scenes(self, number: int, *, plausible: bool = True) -> list[tuple[int, Scene]]:
        """The equations of a step that can be edited, with their places among all; none if one of them is false."""
        scenes = self._scenes.get((number, plausible))
        if scenes is None:
            equations = self.reading(number).equations
            sites = [equation.site for equation in equations]
            if None in sites and self.is_false(number):
                sites = []
            step = self.steps.body(number) if sites else ""
            background = self.background
            scenes = [
                (at, Scene(site, background, step, (), plausible)) for at, site in enumerate(sites) if site is not None
            ]
            self._scenes[number, plausible] = scenes
        return scenes

    def is_false(self, number: int) -> bool:
        """Whether a step has an equation that is surely false."""
        if number not in self._readings:
            sums = plain_sums(self.steps.text, self._plain(number))
            if sums is not None and all(value == stated for value, stated, _ in sums):
                return False  # the usual case, and no reading is built for it
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


class Injection(NamedTuple):
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
    meta: Mapping[str, Any] = MappingProxyType({})


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
    key = blake2b(f"{seed}|{row_id}|{stage}|{attempt}".encode("utf-8", "surrogatepass")).digest()[:8]
    return random.Random(int.from_bytes(key, "big"))
