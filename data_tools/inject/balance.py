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
from typing import NamedTuple

from data_tools.inject.changes import Params, Scene, binary
from data_tools.inject.edits import Change, Replacement
from data_tools.lazy import lazy

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
    "size",
    "size of the last",
    "last that ends in 0",
)
"""What is counted in the places that an edit changes; `repeated numbers` in the whole of the text that is shown.

Operators count by their logarithm there, so that one of another sort weighs more than one more of the same. Sizes are
log(1 + number): of all numbers that change, and of the last of them, which nearly always is the result.
"""

WEIGHTS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "step": {
        "result_offset": (0.11, 2.94, -0.33, 0.77, 0.15, -0.21, -0.88, 0.00, 0.00, 0.00, 0.00, 0.23, 0.23, 2.94),
        "digit_change": (0.20, 2.71, -0.35, 0.60, -0.09, -1.16, -0.37, 0.00, 0.00, 0.00, 0.00, -0.35, 0.85, -3.27),
        "digit_transpose": (-0.27, 1.96, -0.67, 0.37, 0.61, -0.45, -3.00, 0.00, 0.00, 0.00, 0.00, 2.21, -1.35, -3.35),
        "operand_substitute": (0.33, 0.64, -0.09, 0.24, -3.21, -1.37, 0.67, 0.00, 0.00, 0.00, 0.00, -0.58, 0.97, -1.19),
        "operator_flip": (0.34, 0.84, -0.34, 0.17, 0.38, -0.65, -0.05, 7.43, 7.10, 4.84, 4.58, 0.24, 0.24, -1.41),
        "unit_error": (0.24, 0.87, 0.96, -0.79, -0.29, -0.48, -1.86, 0.00, 0.00, 0.00, 0.00, -0.72, 1.29, -1.37),
    },
    "suffix": {
        "result_offset": (0.15, 0.36, -0.09, 0.27, 0.00, -0.11, 0.23, 0.00, 0.00, 0.00, 0.00, -0.08, 0.61, -1.09),
        "digit_change": (0.21, -0.08, -0.17, 0.32, -0.55, -1.08, -0.28, 0.00, 0.00, 0.00, 0.00, -0.13, 0.83, -0.23),
        "digit_transpose": (-0.11, -0.28, -0.33, 0.52, 0.00, -0.66, -2.98, 0.00, 0.00, 0.00, 0.00, 0.89, -0.56, -0.41),
        "operand_substitute": (
            0.28,
            -0.03,
            -0.06,
            0.25,
            -3.52,
            -1.02,
            1.16,
            0.00,
            0.00,
            0.00,
            0.00,
            -0.21,
            0.55,
            -0.12,
        ),
        "operator_flip": (0.16, -0.18, -0.15, 0.02, 0.00, -0.22, 1.25, 3.40, 3.05, 0.54, 0.58, -0.13, 1.07, -0.12),
        "unit_error": (0.20, 0.34, 0.45, 0.02, -0.11, -0.81, -1.80, 0.00, 0.00, 0.00, 0.00, -0.23, 1.15, -0.45),
    },
    "full": {
        "result_offset": (0.16, 0.35, -0.09, 0.24, 0.00, -0.11, 0.53, 0.00, 0.00, 0.00, 0.00, -0.07, 0.58, -1.12),
        "digit_change": (0.18, -0.11, -0.19, 0.29, -0.21, -0.57, -1.17, 0.00, 0.00, 0.00, 0.00, -0.17, 0.80, -0.15),
        "digit_transpose": (0.01, -0.11, -0.18, 0.43, 0.00, -0.41, -4.64, 0.00, 0.00, 0.00, 0.00, 0.62, -0.47, -0.12),
        "operand_substitute": (0.28, 0.02, -0.07, 0.27, -3.18, -1.15, 2.11, 0.00, 0.00, 0.00, 0.00, -0.23, 0.65, -0.34),
        "operator_flip": (0.12, -0.22, -0.16, -0.02, 0.00, -0.36, 1.38, 2.37, 1.85, -0.50, -0.25, -0.10, 1.04, -0.13),
        "unit_error": (0.14, 0.32, 0.54, -0.09, -0.10, -0.46, -1.92, 0.00, 0.00, 0.00, 0.00, -0.19, 0.97, -0.59),
    },
}
"""By mode and kind: how much more often than right texts wrong ones have one more of a look, as a logarithm of odds."""

REPEATED, SIZE, LAST_SIZE, LAST_ROUND = map(
    LOOKS.index, ("repeated numbers", "size", "size of the last", "last that ends in 0")
)

Gap = tuple[float, ...]

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_SIGNS: Mapping[str, re.Pattern[str]] = {
    "+": re.compile(r"\+|\bplus\b"),
    "-": re.compile(r"(?<=[\d)\s])[-−–](?=[\s\d($])|\bminus\b"),
    "*": re.compile(r"[*×·]|\\times|\\cdot|(?<=\d)\s?x\s?(?=\d)|\btimes\b"),
    "/": re.compile(r"(?<=[\s\d)])[/÷](?=[\s\d($])|\\div|\bdivided\b"),
}


@dataclass(eq=False)
class Shown:
    """The part of a right solution that a pair shows."""

    text: str
    begin: int
    end: int

    @lazy
    def numbers(self) -> list[str]:
        """Its numbers as printed, without commas."""
        return self._before(self.end)

    def repeats(self, number: str, result_at: int | None) -> bool:
        """Whether a number stands there twice; a result at a place repeats only what stands before it.

        What repeats a result later on is carried along with it.
        """
        if len(number) < 4 and self.text.count(number, self.begin, self.end) < 2:  # nearly always
            return False
        if self.numbers.count(number) < 2:
            return False
        return result_at is None or number in self._before(result_at)

    def has(self, number: str) -> bool:
        """Whether a number stands there."""
        if len(number) < 4 and self.text.find(number, self.begin, self.end) < 0:
            return False
        return number in self.numbers

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
    furthest = -1
    for at, (start, end, new) in enumerate(replacements):
        own = at < len(change.replacements)  # what follows from the error repeats as often as before
        old, fresh = _number(text[start:end]), _number(new)
        if old:
            number = _count(more, old, -1)
            more[REPEATED] -= own and shown.repeats(number, result.first if end == result.last else None)
        if fresh:
            number = _count(more, fresh, 1)
            more[REPEATED] += own and shown.has(number)
        if old and fresh:
            grown = _log(fresh) - _log(old)
            more[SIZE] += grown
            if start > furthest:
                furthest, more[LAST_SIZE] = start, grown
                more[LAST_ROUND] = float(fresh[-1] == "0") - (old[-1] == "0")
    if "op" in params:
        _count_operators(more, str(binary(scene.tokens)[params["op"]].value), params["to"], shown)
    return tuple(more)


def _number(text: str) -> str:
    """The number in a text, as printed, or nothing."""
    if text.isdecimal():
        return text
    found = _NUMBER.search(text)
    return found[0] if found else ""


def _log(printed: str) -> float:
    return math.log1p(float(printed.replace(",", "")))


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
