"""Edits of a text by replacement of spans, and the edited equation's new result."""

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from data_tools.equations import NumberStyle, Site, Token, Value, format_like, number_value

Span = tuple[int, int]


class Replacement(NamedTuple):
    """`text[start:end]` becomes `new`."""

    start: int
    end: int
    new: str


class Change(NamedTuple):
    """What an error does to one equation: the replacements, its result before and after, as exact values.

    `visible` says that the equation itself becomes false; otherwise it stays true, with another result.
    """

    replacements: tuple[Replacement, ...]
    old: Value
    new: Value
    visible: bool = False


class Edited(NamedTuple):
    """A text after an edit, and the spans that differ: in the old text and in the new one."""

    text: str
    spans_old: tuple[Span, ...]
    spans_new: tuple[Span, ...]

    @property
    def distance(self) -> int:
        """No smaller than the edit distance in characters."""
        distance = 0
        for (a, b), (c, d) in zip(self.spans_old, self.spans_new, strict=True):
            distance += max(b - a, d - c)
        return distance


def edit(text: str, replacements: Iterable[Replacement], begin: int = 0, end: int | None = None) -> Edited:
    """`text[begin:end]` with the replacements made. Spans count from `begin`."""
    pieces: list[str] = []
    old: list[Span] = []
    new: list[Span] = []
    at, length = begin, 0
    for start, stop, fresh in sorted(replacements):
        pieces += (text[at:start], fresh)
        length += start - at
        old.append((start - begin, stop - begin))
        new.append((length, length + len(fresh)))
        length += len(fresh)
        at = stop
    pieces.append(text[at:end])
    return Edited("".join(pieces), tuple(old), tuple(new))


def digits_of(text: str, number: Token) -> str:
    """The bare digits of a number token."""
    return text[number.first : number.last]


def with_digits(number: Token, digits: str) -> Token:
    """The token with other digits; a percent sign keeps its meaning."""
    return with_value(number, number_value(digits))


def with_value(number: Token, printed: Value) -> Token:
    """The token with another printed value."""
    return number._replace(value=hundredth(printed) if number.percent else printed)


def hundredth(value: Value) -> Value:
    """A hundredth, as a whole number where it is one."""
    return exact(Fraction(value) / 100)


def exact(value: Fraction) -> Value:
    """The same number, as an integer where it is one."""
    return value.numerator if value.denominator == 1 else value


def with_result(
    text: str,
    site: Site,
    value: Value,
    replacements: Iterable[Replacement] = (),
    style: NumberStyle | None = None,
    *,
    visible: bool = False,
) -> Change | None:
    """The change that states `value` as the equation's result; None if it prints like the old one."""
    result = site.result
    unit = 100 // site.scale if result.percent else 1  # what the digits count
    replacement, printed = print_number(text, result, value * unit, style, signed=site.other.tokens[0])
    new = hundredth(printed) if result.percent else printed
    if new == site.value:
        return None
    return Change((*replacements, replacement), site.value, new, visible)


def print_number(
    text: str, number: Token, value: Value, style: NumberStyle | None = None, *, signed: Token | None = None
) -> tuple[Replacement, Value]:
    """The replacement of a number's digits by `value` in its style, and the value that is then printed.

    A minus sign goes in front of the currency. `signed` is the sign token that belongs to the old number, if any.
    """
    digits = format_like(value, digits_of(text, number), style)
    bare = digits.removeprefix("-")
    printed = number_value(bare)
    if len(bare) == len(digits) and (signed is None or signed is number):
        return Replacement(number.first, number.last, digits), printed
    start = number.start if signed is None else min(signed.start, number.start)
    sign = "-" if len(bare) < len(digits) else ""
    return Replacement(
        start, number.last, sign + text[number.start : number.first] + bare
    ), -printed if sign else printed
