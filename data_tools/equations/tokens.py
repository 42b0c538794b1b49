"""Text as numbers, operators, brackets, equals signs, unit words, and everything else.

One regular expression reads plain text, simple LaTeX (\\frac, \\times, \\cdot, \\div, \\left, \\right, \\text, \\%) and
the words plus, minus, times, divided by, equals. Numbers that touch letters or belong to something longer ("3rd",
"2x", "10:30", "1.2.3", "1,5") are no numbers but *odd* words, so that no equation is read out of their pieces.
"""

import re
from fractions import Fraction
from typing import NamedTuple

MAX_DIGITS = 30
"""Longer numbers are left alone; the limit keeps exact arithmetic on hostile text cheap."""

NUMBER, OPERATOR, OPEN, CLOSE, EQUALS, WORDS, ODD, BREAK = "n", "o", "(", ")", "=", "w", "j", "t"

_UNITS = (
    "km|cm|mm|kg|mg|lbs|lb|oz|ml|mL|hrs|hr|mins|min|sec|mph|kph|ft|inches|inch|yds|miles|mile|minutes|hours|days|cents"
)
_WORD = (
    r"(?:(?![deimoptxX])[A-Za-z°]|"
    r"(?!(?:plus|minus|times|divided|equals|equal|is)\b|[xX](?![A-Za-z])|of[ ]\\?[$]?[\d(.])[deimoptxX])"
    r"[A-Za-z'’]*+"
)
_OPERAND = r"\s[\d$(.\\-]"
_MASTER = re.compile(
    rf"""
    [^\S\n]++
  | (?P<words> (?:/[ ]?(?=[A-Za-z]{{2}}|[hsmgldL]\b))? {_WORD} (?>(?:[ /-]{_WORD}){{0,11}})
        | \\text\{{[^{{}}\n]{{0,40}}\}} )
  | (?P<n> (?:(?<!\w)|(?<=[\d)\s%][xX]))(?<!\d[.,:])(?P<cur>\\?\$\s?|[£€]\s?)?
        (?P<digits> (?:\d{{1,3}}(?>(?:,\d{{3}})+)|\d++) (?:\.\d++)? | (?<!\d)\.\d++ )
        (?P<mixed>[ ]\d{{1,3}}/\d{{1,3}}(?![\d/.,]))?
        (?![.,:]?\d|\.\.) (?P<pct>\s?\\?%)?
        (?= (?:{_UNITS})(?![\w]) | [xX](?=\s?[\d$(.\\]) | (?![A-Za-z_^\d]) | \^ ) )
  | (?P<eq> (?<![<>=!:~≈])&?=(?![=>]) | \b(?:is[ ]equal[ ]to|equals?)\b(?={_OPERAND}) )
  | (?P<add>\+|\bplus\b(?={_OPERAND})) | (?P<sub>[-−–]|\bminus\b(?={_OPERAND}))
  | (?P<pow>\^|\*\*)
  | (?P<mul>[*×·]|\\(?:times|cdot)\b|\btimes\b(?={_OPERAND})|(?<![A-Za-z])[xX](?=\s?[\d$(.\\])|\bof(?=[ ]))
  | (?P<div>[/÷]|\\div\b|\bdivided[ ]by\b)
  | (?P<frac>\\[dt]?frac\{{) | (?P<bar>\}}\{{) | (?P<brace>\}})
  | (?P<open>\\left[(\[]|(?<!\\)[(\[]) | (?P<close>\\right[)\]]|(?<!\\)[)\]])
  | (?P<odd>(?:\\[A-Za-z]++|[\w]++(?>(?:[.,:]\w++)*)))
  | (?P<line>\n)
  | (?P<other>.)
    """,
    re.VERBOSE,
)
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "^"}
_ONE = {"words": WORDS, "eq": EQUALS, "open": OPEN, "close": CLOSE, "odd": ODD, "line": BREAK, "other": BREAK}


class Token(NamedTuple):
    """A piece of text. `value` is the exact number, or the operator as one of + - * / ^.

    `first` and `last` bound the bare digits of a number, without currency and percent sign; `places` of them are
    decimals. An operator that only the grammar sees (the bar of a fraction, a product without a sign) has no room in
    the text of its own: `bare` is false.
    """

    kind: str
    start: int
    end: int
    value: int | Fraction | str = ""
    first: int = 0
    last: int = 0
    percent: bool = False
    places: int = 0
    bare: bool = True


new_tuple = tuple.__new__
"""Makes a named tuple in a third of the time of its own constructor; for the innermost loops."""


def tokenize(text: str, begin: int = 0, end: int | None = None) -> list[Token]:
    """The tokens of `text[begin:end]`, at their places in `text`. Time is linear in the length of the text."""
    tokens: list[Token] = []
    add = tokens.append
    for found in _MASTER.finditer(text, begin, len(text) if end is None else end):
        kind = found.lastgroup
        if kind is None:
            continue
        start, stop = found.span()
        if kind == "n":
            add(_number(found, start, stop))
        elif kind in _ONE:
            add(new_tuple(Token, (_ONE[kind], start, stop, "", 0, 0, False, 0, True)))
        elif kind in _OPERATORS:
            add(Token(OPERATOR, start, stop, _OPERATORS[kind]))
        else:
            tokens.extend(_fraction(kind, start, stop))
    return tokens


def number_value(digits: str) -> int | Fraction:
    """The exact value of digits as printed: commas group thousands, a point starts decimals."""
    if digits.isdecimal():
        return int(digits)
    digits = digits.replace(",", "")
    if "." not in digits:
        return int(digits)
    whole, _, decimals = digits.partition(".")
    value = Fraction(int(whole + decimals), 10 ** len(decimals))
    return value.numerator if value.denominator == 1 else value


def _number(found: re.Match[str], start: int, stop: int) -> Token:
    digits = found["digits"]
    if len(digits) > MAX_DIGITS:
        return Token(ODD, start, stop)
    value = number_value(digits)
    first, last = found.span("digits")
    bare = True
    if mixed := found["mixed"]:
        top, _, bottom = mixed.partition("/")
        if int(bottom) == 0 or "." in digits:
            return Token(ODD, start, stop)
        value, last, bare = value + Fraction(int(top), int(bottom)), found.end("mixed"), False
    percent = found["pct"] is not None
    if percent:
        value = Fraction(value, 100)
        value = value.numerator if value.denominator == 1 else value
    return new_tuple(Token, (NUMBER, start, stop, value, first, last, percent, len(digits.partition(".")[2]), bare))


def _fraction(kind: str, start: int, stop: int) -> list[Token]:
    """A fraction of LaTeX as brackets around a quotient of brackets; a brace elsewhere closes nothing."""
    opening, closing = (Token(k, start, stop, bare=False) for k in (OPEN, CLOSE))
    if kind == "frac":
        return [opening, opening]
    if kind == "bar":
        return [closing, Token(OPERATOR, start, stop, "/", bare=False), opening]
    return [closing, closing]
