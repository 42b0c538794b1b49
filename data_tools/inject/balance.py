"""Errors that look like right equations: an edit is kept the more rarely, the more it looks like an edit.

Metropolis' rule. If an edit and its inverse are proposed equally often, and an edit from one look to another is kept
with probability min(1, p(new look) / p(old look)), where p is how often right texts have a look, then right and wrong
side change places without changing the odds: no classifier on those looks beats a coin. Here log p is linear in a few
looks. The weights are measured, since proposals are not symmetric either: `benchmarks/inject_balance.py` fits them, so
that a logistic regression on the looks of what is kept finds nothing.
"""

import math
import operator
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from data_tools.inject.changes import Params, Scene, binary
from data_tools.inject.edits import Change, Replacement

LOOKS = (
    "digits",
    "numbers that end in 0",
    "numbers that end in 5",
    "one-digit numbers",
    "decimal points",
    "commas",
    "repeated numbers",
    "+",
    "-",
    "*",
    "/",
)
"""What is counted in the places that an edit changes; `repeated numbers` in the whole of the text that is shown.

Operators count by their logarithm there, so that one of another sort weighs more than one more of the same.
"""

WEIGHTS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "step": {
        "result_offset": (0.26, 4.87, -0.30, 0.48, 0.12, -0.04, -0.95, 0.00, 0.00, 0.00, 0.00),
        "digit_change": (0.44, -0.18, -0.36, 0.75, -0.91, -0.99, -0.38, 0.00, 0.00, 0.00, 0.00),
        "digit_transpose": (1.92, -0.81, -0.90, 0.78, -0.81, -0.44, -3.09, 0.00, 0.00, 0.00, 0.00),
        "operand_substitute": (-0.02, -0.10, -0.13, 0.13, -2.55, -1.31, 0.58, 0.00, 0.00, 0.00, 0.00),
        "operand_swap": (1.82, 0.36, -0.10, 0.58, -0.47, 0.00, 3.28, 0.00, 0.00, 0.00, 0.00),
        "operator_flip": (0.94, -0.49, -0.39, 0.78, -1.67, -0.50, -0.04, 7.05, 5.89, 5.08, 3.98),
        "unit_error": (-0.00, 0.21, 0.83, -1.09, -0.65, -0.54, -1.71, 0.00, 0.00, 0.00, 0.00),
    },
    "suffix": {
        "result_offset": (0.17, 0.03, -0.10, 0.18, 0.00, 0.05, 0.19, 0.00, 0.00, 0.00, 0.00),
        "digit_change": (0.22, -0.14, -0.18, 0.30, -0.56, -0.88, -0.23, 0.00, 0.00, 0.00, 0.00),
        "digit_transpose": (0.86, -0.35, -0.41, 0.51, 0.00, -0.76, -3.01, 0.00, 0.00, 0.00, 0.00),
        "operand_substitute": (0.06, -0.09, -0.08, 0.17, -3.32, -0.97, 1.13, 0.00, 0.00, 0.00, 0.00),
        "operator_flip": (0.33, -0.19, -0.13, 0.25, 0.00, -0.12, 1.20, 3.09, 1.60, 1.06, 0.19),
        "unit_error": (0.09, 0.27, 0.56, -0.19, -0.12, -0.65, -1.65, 0.00, 0.00, 0.00, 0.00),
    },
    "full": {
        "result_offset": (0.18, 0.03, -0.10, 0.15, 0.00, 0.04, 0.48, 0.00, 0.00, 0.00, 0.00),
        "digit_change": (0.12, -0.15, -0.18, 0.25, -0.17, -0.47, -1.16, 0.00, 0.00, 0.00, 0.00),
        "digit_transpose": (0.81, -0.24, -0.38, 0.62, 0.00, -0.70, -4.92, 0.00, 0.00, 0.00, 0.00),
        "operand_substitute": (0.04, -0.09, -0.09, 0.21, -2.96, -0.88, 2.11, 0.00, 0.00, 0.00, 0.00),
        "operand_swap": (1.18, -0.22, -0.37, 0.39, 0.00, 0.00, 2.61, 0.00, 0.00, 0.00, 0.00),
        "operator_flip": (0.33, -0.21, -0.13, 0.22, 0.00, -0.44, 1.41, 2.06, 0.31, 0.17, -0.63),
        "unit_error": (0.04, 0.30, 0.67, -0.40, -0.10, -0.32, -1.82, 0.00, 0.00, 0.00, 0.00),
    },
}
"""By mode and kind: how much more often than right texts wrong ones have one more of a look, as a logarithm of odds."""

REPEATED = LOOKS.index("repeated numbers")

Gap = tuple[float, ...]

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_SIGNS: Mapping[str, re.Pattern[str]] = {
    "+": re.compile(r"\+|\bplus\b"),
    "-": re.compile(r"(?<=[\d)\s])[-−–](?=[\s\d($])|\bminus\b"),
    "*": re.compile(r"[*×·]|\\times|\\cdot|(?<=\d)\s?x\s?(?=\d)|\btimes\b"),
    "/": re.compile(r"(?<=[\s\d)])[/÷](?=[\s\d($])|\\div|\bdivided\b"),
}


@dataclass(frozen=True)
class Shown:
    """The part of a right solution that a pair shows."""

    text: str
    begin: int
    end: int

    @cached_property
    def numbers(self) -> list[str]:
        """Its numbers as printed, without commas."""
        return self._before(self.end)

    def repeats(self, number: str, result_at: int | None) -> bool:
        """Whether a number stands there twice; a result at a place repeats only what stands before it.

        What repeats a result later on is carried along with it.
        """
        if self.numbers.count(number) < 2:
            return False
        return result_at is None or number in self._before(result_at)

    def operators(self, sign: str) -> int:
        """How often an operator stands there."""
        return len(_SIGNS[sign].findall(self.text, self.begin, self.end))

    def _before(self, end: int) -> list[str]:
        found = _NUMBER.findall(self.text, self.begin, end)
        return [number.replace(",", "") for number in found]


class Proposal(NamedTuple):
    """An error as proposed: where, by what parameters, what it changes, and what part of the text the pair shows.

    `replacements` are those of the change, and perhaps of what follows from it.
    """

    scene: Scene
    params: Params
    change: Change
    replacements: Sequence[Replacement]
    shown: Shown


@dataclass(frozen=True)
class Balance:
    """Which edits are kept, by mode and kind. Kinds without weights are not thinned out."""

    weights: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=lambda: WEIGHTS)

    def keeps(self, mode: str, kind: str, proposal: Proposal, rng: random.Random) -> bool:
        """Whether an edit is kept: always if it makes the text look more like a right one, else by chance."""
        weights = self.weights.get(mode, {}).get(kind)
        if weights is None:
            return True
        odds = sum(map(operator.mul, weights, gap(proposal)))
        return odds <= 0 or rng.random() < math.exp(-odds)


def gap(proposal: Proposal) -> Gap:
    """How much more of each of `LOOKS` the edited equation has."""
    scene, params, change, replacements, shown = proposal
    text, result = scene.text, scene.site.result
    more = [0.0] * len(LOOKS)
    for at, (start, end, new) in enumerate(replacements):
        own = at < len(change.replacements)  # what follows from the error repeats as often as before
        old, fresh = _NUMBER.search(text, start, end), _NUMBER.search(new)
        if old is not None:
            number = _count(more, old[0], -1)
            more[REPEATED] -= own and shown.repeats(number, result.first if end == result.last else None)
        if fresh is not None:
            number = _count(more, fresh[0], 1)
            more[REPEATED] += own and number in shown.numbers
    if "op" in params:
        _count_operators(more, str(binary(scene.tokens)[params["op"]].value), params["to"], shown)
    return tuple(more)


def _count(more: list[float], printed: str, sign: int) -> str:
    """Add the looks of one number. Gives the number without commas."""
    number = printed.replace(",", "") if "," in printed else printed
    more[0] += sign * len(number)
    if "." in number:
        more[4] += sign
    else:
        last = number[-1]
        if last == "0":
            more[1] += sign
        elif last == "5":
            more[2] += sign
        if len(number) == 1:
            more[3] += sign
    more[5] += sign * (len(printed) - len(number))
    return number


def _count_operators(more: list[float], old: str, new: str, shown: Shown) -> None:
    more[LOOKS.index(old)] -= _step(shown.operators(old) - 1)
    more[LOOKS.index(new)] += _step(shown.operators(new))


def _step(count: int) -> float:
    """log(1 + count) from a count to the next."""
    return math.log((count + 2) / (count + 1)) if count >= 0 else math.log(2)
