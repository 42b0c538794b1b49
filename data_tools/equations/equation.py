"""Equations, their sides, and the places in them that can be edited."""

from collections.abc import Sequence
from typing import NamedTuple

from data_tools.equations.expression import Value, magnitude
from data_tools.equations.tokens import NUMBER, Token


class Side(NamedTuple):
    """One side of an equation: its tokens without the unit words, those words, and its exact value if it has one.

    `end` is where its last token ends, `unit_end` where the words behind it do.
    """

    tokens: tuple[Token, ...]
    units: tuple[str, ...]
    start: int
    end: int
    unit_end: int
    value: Value | None

    @property
    def numbers(self) -> list[Token]:
        """The operands in the order of the text."""
        return [token for token in self.tokens if token.kind == NUMBER]

    @property
    def result(self) -> Token | None:
        """The number, if the side is nothing but one number with or without a sign."""
        if len(self.tokens) == 1 or (len(self.tokens) == 2 and self.tokens[0].value == "-"):
            return self.tokens[-1]
        return None


class Site(NamedTuple):
    """A true equation `expression = result`; `scale` is 100 where the result counts per cent of the expression."""

    expression: Side
    other: Side
    result: Token
    value: Value
    scale: int

    @property
    def start(self) -> int:
        """Where the equation starts."""
        return min(self.expression.start, self.other.start)

    @property
    def end(self) -> int:
        """Where the equation ends."""
        return max(self.expression.end, self.other.end)


class Equation(NamedTuple):
    """Two or more sides that the text says are equal.

    `site` is the equation as a place for edits, where it is one expression and one number that agree.
    """

    sides: tuple[Side, ...]
    site: Site | None

    @property
    def start(self) -> int:
        """Where its first side starts."""
        return self.sides[0].start

    @property
    def end(self) -> int:
        """Where its last side ends."""
        return self.sides[-1].end


def equation_of(sides: Sequence[Side]) -> Equation:
    """The equation of these sides."""
    return Equation(tuple(sides), _site(sides))


def agreement(exact: Value, printed: Value, places: int, *, percent: bool = False) -> int:
    """The scale at which a printed result agrees with the exact value: 1, 100 for a result in per cent, or 0 for none.

    A result with decimals may differ by half a unit of its last one. "10 / 50 = 20%" and "20 + 30 = 50%" are both
    right: in the first the result is the value itself, in the second it counts hundredths.
    """
    ulp: int = 10**places
    unit = 100 * ulp if percent else ulp
    if exact == printed or (places and 2 * magnitude(exact - printed) * unit <= 1):
        return 1
    if percent and (exact == printed * 100 or (places and 2 * magnitude(exact - printed * 100) * ulp <= 1)):
        return 100
    return 0


def _site(sides: Sequence[Side]) -> Site | None:
    if len(sides) != 2:
        return None
    left, right = sides
    expression, other = (left, right) if right.result is not None else (right, left)
    result = other.result
    if result is None or expression.result is not None or expression.value is None or other.value is None:
        return None
    scale = agreement(expression.value, other.value, result.places, percent=result.percent)
    return Site(expression, other, result, other.value, scale) if scale else None
