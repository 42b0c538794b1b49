"""Whether an equation of a text is true, false, or beyond what can be said with certainty."""

import re
from enum import Enum
from fractions import Fraction

from data_tools.equations.equation import Equation, Side, agreement
from data_tools.equations.expression import Value, magnitude
from data_tools.equations.parse import find_equations

_CONVERSIONS = frozenset(
    (2, 3, 4, 7, 8, 10, 12, 16, 20, 24, 30, 36, 50, 52, 60, 100, 365, 1000, 1440, 1760, 3600, 5280)
)
_THINKS = ("think", "say", "guess", "believe", "assume", "suppose", "write", "compute", "calculate", "claim")
_THOUGHT = ("thought", "guessed", "believed", "assumed", "supposed", "claimed", "pretended")
_DID = ("said", "wrote", "computed", "calculated")
_OPENING = "\"'“‘("
_BEFORE = f"{_OPENING}:, \n"
_DENIED = re.compile(
    rf"(?:\b(?:not|never|instead of|rather than)|n['’]t)\s(?:that\s)?[{_OPENING}\s]{{0,2}}\Z"
    rf"|\b(?:(?:might|may|could|would)\s(?:have\s)?(?:{'|'.join((*_THINKS, *_THOUGHT, *_DID))})|{'|'.join(_THOUGHT)}"
    rf"|(?:wrongly|mistakenly|incorrectly)\s(?:{'|'.join((*_THINKS, *_THOUGHT, *_DID))}))"
    rf"\b[:,]?(?:\sthat)?(?:\sit\sis)?[{_OPENING}\s]{{0,2}}\Z",
    re.IGNORECASE,
)
_WRONG = re.compile(
    r"[\"'”’)]?\s(?:is|was|would be)\s(?:wrong|incorrect|false|a mistake|not (?:right|correct|true))\b", re.IGNORECASE
)
_LAST = frozenset(("not", "never", "of", "than", "that", "is", *_THINKS, *_THOUGHT, *_DID))
"""What stands last in front of an equation that is denied; others are known by it without the expression."""
_FRONT = 40
"""How many characters in front of an equation may deny it."""


class Verdict(Enum):
    """What an equation is."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


def judge(equation: Equation) -> Verdict:
    """TRUE if all sides agree exactly or within the rounding of a printed result, FALSE if some surely do not.

    UNKNOWN where a difference may have an innocent reason: a quotient cut or rounded to fewer digits than half a unit
    allows, running totals, unit words with a ratio that converts one unit into another ("60 + 30 = 1.5 hours").
    """
    if equation.site is not None:
        return Verdict.TRUE
    verdicts = {_compare(left, right) for left, right in zip(equation.sides, equation.sides[1:], strict=False)}
    if Verdict.FALSE in verdicts:
        return Verdict.FALSE
    return Verdict.UNKNOWN if Verdict.UNKNOWN in verdicts else Verdict.TRUE


def judged(text: str) -> list[tuple[Equation, Verdict]]:
    """The equations of a text with their verdicts; UNKNOWN for those that the text does not stand by."""
    return [
        (equation, Verdict.UNKNOWN if is_denied(text, equation) else judge(equation))
        for equation in find_equations(text)
    ]


def is_denied(text: str, equation: Equation) -> bool:
    """Whether the text around an equation says that it does not hold, or that somebody might think so.

    Of "Not 5 * 3 = 15 but 5 * 4 = 20" the first is denied: with another result it would be denied rightly.
    """
    start, end = equation.start, equation.end
    begin = start - _FRONT if start > _FRONT else 0
    words = text[begin:start].lower().rstrip(_BEFORE).split()
    if words and (words[-1] in _LAST or words[-1].endswith(("n't", "n’t"))) and _DENIED.search(text, begin, start):
        return True
    return _WRONG.match(text, end) is not None


def _compare(left: Side, right: Side) -> Verdict:
    if left.value is None or right.value is None:
        return Verdict.UNKNOWN
    if left.result is not None and right.result is not None and (left.units or right.units):
        return Verdict.UNKNOWN  # "1 hour = 60 minutes" inside a chain
    if _agree(left, right) or _agree(right, left):
        return Verdict.TRUE
    if right.result is None and right.tokens[0].value == left.value:
        return Verdict.UNKNOWN  # "3 + 4 = 7 + 1 = 8": a running total, and who writes it means what is right
    if _rounded(left, right) or _rounded(right, left) or _mixed(left) or _mixed(right):
        return Verdict.UNKNOWN
    percent = any(token.percent for token in (*left.tokens, *right.tokens))
    if percent and _hundredfold(left.value, right.value):
        return Verdict.UNKNOWN
    if (left.units or right.units) and converts(left.value, right.value):
        return Verdict.UNKNOWN
    return Verdict.FALSE


def _agree(side: Side, other: Side) -> bool:
    """Whether the second side states the value of the first."""
    assert side.value is not None
    assert other.value is not None
    result = other.result
    if result is None:
        return side.value == other.value
    return bool(agreement(side.value, other.value, result.places, percent=result.percent))


def _rounded(side: Side, other: Side) -> bool:
    """Whether the second side may be a shorter number for a value that has no end: cut, or rounded to the whole."""
    if other.result is None or side.result is not None or isinstance(side.value, int):
        return False
    assert side.value is not None
    assert other.value is not None
    unit = Fraction(1, 10**other.result.places) / (100 if other.result.percent else 1)
    return magnitude(side.value - other.value) < unit


def _mixed(side: Side) -> bool:
    """Whether different units stand inside one side, so that numbers alone decide nothing."""
    if side.result is not None:
        return False
    return len({unit.strip("/ ").lower().rstrip("s") for unit in side.units if " " not in unit.strip()}) > 1


def _hundredfold(left: Value, right: Value) -> bool:
    """Whether the sides differ by the factor of a percent sign, rounding aside: "9 / 21 * 100% = 42.857"."""
    a, b = Fraction(left), Fraction(right)
    return abs(100 * a - b) < 1 or abs(100 * b - a) < 1


def converts(left: Value, right: Value) -> bool:
    """Whether the ratio of two values is one between common units."""
    if not left or not right:
        return False
    if isinstance(left, int) and isinstance(right, int) and left % right and right % left:
        return False  # all are whole, or one over a whole number
    ratio = abs(Fraction(left) / Fraction(right))
    return ratio in _CONVERSIONS or 1 / ratio in _CONVERSIONS
