"""What a problem and its solution say about numbers; each is worked out when it is first asked for."""

import re
from dataclasses import dataclass

from data_tools.equations import NumberStyle, Token, Value, magnitude, number_value
from data_tools.extraction import answer_number
from data_tools.lazy import lazy

_NUMBER = re.compile(r"\d(?<![\w.].)(?:\d{0,2}(?>(?:,\d{3})+)|\d{0,29}+)(?:\.\d{1,30}+)?(?![\w,.]?\d)")
"""Begins with a digit and looks back only then, which makes the search fast."""

_WORD = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|twenty|thirty|hundred)\b", re.I
)
_WORD_VALUES = dict(
    zip(
        ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
        range(2, 13),
        strict=True,
    ),
    dozen=12,
    twenty=20,
    thirty=30,
    hundred=100,
)
_SIGNED = re.compile(r"[-−]\$?\d")


@dataclass(frozen=True)
class Background:
    """The texts that an error has to fit into."""

    prompt: str
    solution: str

    @lazy
    def numbers(self) -> tuple[Value, ...]:
        """The problem's numbers in digits, each once, in order."""
        return numbers_in(self.prompt)

    @lazy
    def protected(self) -> frozenset[Value]:
        """The problem's numbers in digits and in words: a value among them may come from the problem."""
        words = (_WORD_VALUES[found.lower()] for found in _WORD.findall(self.prompt))
        return frozenset((*self.numbers, *words))

    @lazy
    def style(self) -> NumberStyle:
        """How long numbers are printed here."""
        return NumberStyle((self.prompt, self.solution))

    @lazy
    def negatives(self) -> bool:
        """Whether negative numbers occur, so that one more is no giveaway."""
        return any(map(_has_negative, (self.solution, self.prompt)))

    @lazy
    def answer(self) -> Token | None:
        """The number of the final answer, at its place in the solution."""
        return answer_number(self.solution)


def looks_alike(old: Value, new: Value, background: Background) -> bool:
    """Whether a value may stand in for another one without giving itself away by its looks.

    Whole numbers stay whole, there are no more than four decimals, zero does not appear, the sign stays unless negative
    numbers occur anyway, and the magnitude changes by no more than a factor of ten, nor by so little that who compares
    numbers with a tolerance calls them equal.
    """
    if magnitude(new - old) * 10**5 < magnitude(old):
        return False
    if type(new) is int:
        if new > 0 and type(old) is int and old > 0:  # nearly always
            return old <= 10 * new and new <= 10 * old
    elif isinstance(old, int) or 10**4 % new.denominator:
        return False
    if not new or ((old < 0) != (new < 0) and not background.negatives):
        return False
    size, before = magnitude(new), magnitude(old)
    return before <= 10 * size and (size <= 10 * before or not before)


def _has_negative(text: str) -> bool:
    """Whether a sign stands in front of a number, and not between two."""
    for found in _SIGNED.finditer(text):
        before = text[max(found.start() - 4, 0) : found.start()].rstrip()[-1:]
        apart = text[found.start() - 1 : found.start()].isspace()
        if before and (before in "=(*/+,:" or (before.isalpha() and apart)):
            return True
    return False


def numbers_in(text: str, begin: int = 0, end: int | None = None) -> tuple[Value, ...]:
    """Numbers in digits, each once, in the order of the text."""
    found = _NUMBER.findall(text, begin, len(text) if end is None else end)
    return tuple(dict.fromkeys(map(number_value, found)))
