"""The final answer of a solution, and whether two answers are the same number."""

import re
from collections import deque
from fractions import Fraction

MAX_DIGITS = 200
"""Longer numbers are nobody's answer; the limit keeps exact arithmetic on hostile text cheap."""

_MARKER = re.compile(r"the\s{1,3}(?:final\s{1,3})?answer\s{1,3}is|####|\\boxed\s?\{", re.IGNORECASE)
_LEAD_IN = re.compile(r"(?:[\s:=*_($€£~]|\\[$(]|\\text\{|\\boxed\s?\{)*")
_INTEGER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_DECIMAL = rf"(?:{_INTEGER}(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(
    rf"(?P<sign>[-+\u2212]?)\s?\\?\$?(?:"
    rf"\\[dt]?frac\{{(?P<top>\d+)\}}\{{(?P<bottom>\d+)\}}"
    rf"|(?P<whole>{_INTEGER})\s(?P<part>\d+/\d+)"
    rf"|(?P<left>{_DECIMAL})(?:\s?/\s?(?P<right>{_DECIMAL}))?)"
)
_MORE = re.compile(r"\s?(?:[-+*/^×÷=\u2212]\s?[\d(.$]|[eE][-+]?\d|[:,]\d|\.\d)")  # the number goes on as an expression
_SIDES = re.compile(r"(?:[A-Za-z]?[-+*/×÷^ \d.,()$\u2212]*=)*[ $]*")  # all sides of an equation but the last
_WINDOW = 2 * MAX_DIGITS + 100


def final_answer(text: str) -> str | None:
    """The number after the last "The answer is", "####" or "\\boxed{", or None when there is none.

    Thousands commas, currency signs, the period of the sentence and needless zeros go: "$1,250.50." gives "1250.5".
    An equation counts by its last side ("The answer is 3 + 4 = 7." gives "7"); any other expression, or a last marker
    without a number behind it, gives None: an earlier marker is not consulted. Fractions stay fractions ("3/4").
    Time is linear in the length of the text.
    """
    last = deque(_MARKER.finditer(text), maxlen=1)
    if not last:
        return None
    begin = last[0].end()
    rest = text[begin : begin + _WINDOW]
    rest = rest[_length(_LEAD_IN, rest) :]
    return _leading_number(rest[_length(_SIDES, rest) :])


def normal_number(text: str) -> str | None:
    """`text` in the normal form of `final_answer`, or None if it is not one number."""
    text = text.strip().rstrip(".")
    return _leading_number(text, whole=True) if len(text) <= _WINDOW else None


def same_answer(a: str | None, b: str | None) -> bool:
    """Whether two answers are the same number, exactly: "0.5", "1/2" and ".50" are; "0.333" and "1/3" are not.

    Answers that are not numbers are the same when their texts are, spaces around them aside. None equals nothing.
    """
    if a is None or b is None:
        return False
    if a == b:  # the usual case, both already in normal form
        return bool(a.strip())
    left, right = normal_number(a), normal_number(b)
    if left is None or right is None:
        return left is right and bool(a.strip()) and a.strip() == b.strip()
    return left == right or Fraction(left) == Fraction(right)


def _leading_number(text: str, *, whole: bool = False) -> str | None:
    """The number at the start of `text` in normal form; with `whole`, nothing but a unit sign may follow it."""
    found = _NUMBER.match(text)
    if found is None or _MORE.match(text, found.end()):
        return None
    if whole and text[found.end() :].strip(" $€£"):
        return None
    if len(found.group()) > 2 * MAX_DIGITS or max(map(len, re.findall(r"\d+", found.group()))) > MAX_DIGITS:
        return None
    return _normalise(found)


def _length(pattern: re.Pattern[str], text: str) -> int:
    """How much of the beginning of `text` the pattern covers."""
    found = pattern.match(text)
    return found.end() if found else 0


def _normalise(found: re.Match[str]) -> str | None:
    sign = "-" if found["sign"] in ("-", "\u2212") else ""
    if found["top"]:
        number = _ratio(found["top"], found["bottom"])
    elif found["whole"]:
        top, bottom = found["part"].split("/")
        rest = _ratio(top, bottom)
        number = None if rest is None else str(int(found["whole"].replace(",", "")) + Fraction(rest))
    elif found["right"]:
        number = _ratio(found["left"], found["right"])
    else:
        number = _plain(found["left"])
    return number if number in (None, "0") else f"{sign}{number}"


def _plain(digits: str) -> str:
    """Without commas and needless zeros: "007.50" is "7.5"."""
    whole, _, decimals = digits.replace(",", "").partition(".")
    whole, decimals = whole.lstrip("0") or "0", decimals.rstrip("0")
    return f"{whole}.{decimals}" if decimals else whole


def _ratio(top: str, bottom: str) -> str | None:
    """The quotient as written, zeros aside ("6/8" stays "6/8"); None for division by zero."""
    top, bottom = _plain(top), _plain(bottom)
    if bottom == "0":
        return None
    if "." in top or "." in bottom:
        return str(Fraction(top) / Fraction(bottom))
    return "0" if top == "0" else f"{top}/{bottom}"
