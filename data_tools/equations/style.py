"""A new number printed the way the number it replaces was printed, so that its look gives nothing away."""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from data_tools.equations.expression import Value, magnitude

_GROUPED = re.compile(r"\d,\d{3}(?!\d)")
_LONG = re.compile(r"(?<![\d.,])\d{4,}(?![\d,])")


@dataclass(frozen=True)
class NumberStyle:
    """How the texts print long numbers, for a new number whose predecessor was too short to say."""

    texts: tuple[str, ...] = ()

    @cached_property
    def grouped(self) -> bool:
        """Whether thousands get commas: some number has one, and none of four digits goes without."""
        return any(map(_GROUPED.search, self.texts)) and not any(map(_LONG.search, self.texts))


def format_like(value: Value, old: str, style: NumberStyle | None = None) -> str:
    """`value` in the style of the digits `old`, a minus sign in front if it is negative.

    Whole values stay whole where the old number was; otherwise there are at least two decimals, rounded half up, and
    trailing zeros only where the old number had one. Thousands commas stay, or follow `style` where the old number
    was too short to show any.
    """
    if type(value) is int and value >= 0 and old.isdecimal():
        digits = str(value)
        if len(digits) <= 3 or len(old) > 3 or style is None or not style.grouped:  # most numbers
            return digits
    whole, point, decimals = old.replace(",", "").partition(".")
    places = len(decimals)
    if places == 0 and value.denominator == 1:
        digits = str(abs(int(value)))
    else:
        digits = _rounded(magnitude(value), max(places, 2))
        if not decimals.endswith("0"):
            digits = digits.rstrip("0").rstrip(".")
    if point and not whole:  # ".5" stays without the zero
        digits = digits.removeprefix("0") if digits.startswith("0.") else digits
    if len(digits) > 3 and ("," in old or (style is not None and len(whole) < 4 and style.grouped)):
        digits = _grouped(digits)
    return f"-{digits}" if value < 0 and digits.strip("0.") else digits


def _rounded(value: Value, places: int) -> str:
    scaled = Fraction(value) * 10**places
    units = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)  # half up
    digits = str(units).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}"


def _grouped(digits: str) -> str:
    whole, point, decimals = digits.partition(".")
    return (f"{int(whole):,}" if whole else "") + point + decimals
