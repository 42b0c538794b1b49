"""Whether two final answers are the same: text, then numbers, then symbolic expressions.

Numbers never leave this process. Everything else is compared by math-verify in a process of its own, which is stopped
when it takes too long: no expression, however deep its powers, can hold up a run.
"""

import re
from fractions import Fraction

from data_tools._symbolic import SymbolicProcess
from data_tools.answers import normal_number
from data_tools.characters import plain_characters
from data_tools.extraction import extract_answer

MAX_EXPRESSION = 400
"""Characters. Longer answers are compared as text only."""

_DRESS = re.compile(r"\\(?:left|right|displaystyle|!|,|;|:)(?![A-Za-z])|\$|\\?%|\*\*(?=\s|\Z)")
_TEXT = re.compile(r"\\(?:text|mathrm|mbox|textbf|mathbf)\s?\{([^{}]{0,100})\}")
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\\,|\{,\})(?=\d{3}(?!\d))")
_UNIT = re.compile(r"(?<=[\d.)}])\s*(?:[A-Za-z]{2,}|°|[kcm]?m|kg|g|s|h)(?:\s[A-Za-z]{2,}){0,3}\.?\s*\Z")
_FRACTION = re.compile(r"(-?)\s*\\[dt]?frac\s?\{(-?\d{1,30})\}\s?\{(-?\d{1,30})\}")
_SCIENTIFIC = re.compile(r"-?\d{1,30}(?:\.\d{1,30})?[eE][-+]?\d{1,2}")
_SMALL_POWER = re.compile(r"(-?\d{1,10}(?:\.\d{1,10})?)\^\{?(-?\d{1,2})\}?")
_POWER = r"(?:\^|\*\*)"
_BOMB = re.compile(  # towers of powers, long exponents, factorials of factorials
    rf"{_POWER}[^-+*/=,]{{0,20}}{_POWER}|{_POWER}\s*[({{]*\s*\d{{4,}}|!\s*[)}}]*\s*!|\d{{5,}}\s*!"
)

_process = SymbolicProcess()


def clean_answer(text: str) -> str:
    """An answer without its dress: dollar and per cent signs, \\text, \\left, thousands commas, unit words, period.

    Fractions of one character, superscripts, wide digits, and other minus signs and spaces become plain ones. Of a text
    that states an answer ("#### 17", "\\boxed{17}") it is that answer.
    """
    if "####" in text or "\\boxed" in text:
        text = extract_answer(text) or text
    text = text if text.isascii() else plain_characters(text)
    text = _DRESS.sub("", _TEXT.sub(r" \1", text)).strip()
    text = _THOUSANDS.sub("", text).removesuffix(".").strip()
    return _UNIT.sub("", text).strip()


def compare_answers(
    a: str | None,
    b: str | None,
    *,
    rel_tol: float = 1e-6,
    abs_tol: float | None = None,
    symbolic: bool = True,
    seconds: float = 2.0,
) -> bool | None:
    """True if two answers are the same, False if they surely differ, None if that cannot be said.

    Numbers are the same within `rel_tol` of the larger one, or, if `abs_tol` is given, within that (0.001 is the rule
    of Step-DPO; it calls 0.0004 and 0.0012 equal). What is no number is compared symbolically for at most `seconds`.
    A missing answer, an expression that is too long or too deep, and one that takes too long give None.
    """
    if a is None or b is None or not a.strip() or not b.strip():
        return None
    if a.strip() == b.strip():
        return True
    left, right = clean_answer(a), clean_answer(b)
    if left == right and left:
        return True
    x, y = _number(left), _number(right)
    if x is not None and y is not None:
        allowed = Fraction(abs_tol) if abs_tol is not None else Fraction(rel_tol) * max(abs(x), abs(y))
        return abs(x - y) < allowed if abs_tol is not None else abs(x - y) <= allowed
    if not symbolic or len(left) > MAX_EXPRESSION or len(right) > MAX_EXPRESSION:
        return None
    if any(_BOMB.search(text) or text.count("(") + text.count("{") > 40 for text in (left, right)):
        return None
    return _process.equal(left, right, seconds=seconds)


def equal_answers(
    a: str | None, b: str | None, *, rel_tol: float = 1e-6, abs_tol: float | None = None, symbolic: bool = True
) -> bool:
    """Whether two answers are surely the same; see `compare_answers`."""
    return compare_answers(a, b, rel_tol=rel_tol, abs_tol=abs_tol, symbolic=symbolic) is True


def _number(text: str) -> Fraction | None:
    """The number that a text is, or None."""
    if (fraction := _FRACTION.fullmatch(text)) and int(fraction[3]):
        value = Fraction(int(fraction[2]), int(fraction[3]))
        return -value if fraction[1] else value
    if _SCIENTIFIC.fullmatch(text):
        return Fraction(text)
    if power := _SMALL_POWER.fullmatch(text):
        base, exponent = Fraction(power[1]), int(power[2])
        return base**exponent if base or exponent > 0 else None
    form = normal_number(text)
    return None if form is None else Fraction(form)
