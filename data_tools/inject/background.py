"""What a problem and its solution say about numbers; each is worked out when it is first asked for."""

import re
from dataclasses import dataclass
from functools import cached_property

from data_tools.equations import NumberStyle, Token, Value, number_value
from data_tools.extraction import answer_number

_NUMBER = re.compile(r"(?<![\w.])(?:\d{1,3}(?:,\d{3})++|\d{1,30}+)(?:\.\d{1,30}+)?(?![\w,.]?\d)")
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

    @cached_property
    def numbers(self) -> tuple[Value, ...]:
        """The problem's numbers in digits, each once, in order."""
        return numbers_in(self.prompt)

    @cached_property
    def protected(self) -> frozenset[Value]:
        """The problem's numbers in digits and in words: a value among them may come from the problem."""
        words = (_WORD_VALUES[found.lower()] for found in _WORD.findall(self.prompt))
        return frozenset((*self.numbers, *words))

    @cached_property
    def style(self) -> NumberStyle:
        """How long numbers are printed here."""
        return NumberStyle((self.prompt, self.solution))

    @cached_property
    def negatives(self) -> bool:
        """Whether negative numbers occur, so that one more is no giveaway."""
        return any(map(_has_negative, (self.solution, self.prompt)))

    @cached_property
    def answer(self) -> Token | None:
        """The number of the final answer, at its place in the solution."""
        return answer_number(self.solution)


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
