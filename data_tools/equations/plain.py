"""The short way for the commonest kind of equation; everything else is left to the grammar.

Most steps have only equations like `12 boxes * 8 = 96 pens`: numbers, signs, unit words, one plain result. Reading
them around their equals signs, without looking at the rest of the text, takes a fraction of the time.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from data_tools.equations.equation import Equation, Side, Site, equation_of
from data_tools.equations.expression import evaluate
from data_tools.equations.tokens import NUMBER, OPERATOR, WORDS, Token, new_tuple, number_value, tokenize

NEAR, WINDOW = 30, 80
"""How far to the left an expression is looked for, in characters: first near, then far."""

_NUM = r"(?:(?:[1-9]\d{0,2}(?>(?:,\d{3})+)|\d{1,12}+)(?>(?:\.\d{1,9}+)?)|\.\d{1,9}+)"
_NO_UNIT = "plus|minus|times|divided|equals|equal|is|of|and|or|so|then|because|which|that|but|if|where"
_NO_NUMBER = "plus|minus|times|by|equals|equal|is|of"
_UNIT = rf"(?>(?:[ ](?!(?:{_NO_UNIT})\b)[a-z]{{2,12}}+){{1,3}})"
_OPERAND = rf"\$?{_NUM}(?:{_UNIT}(?:/[a-z]{{2,12}}+)?|/[a-z]{{2,12}}+)?"
_SIGN = r"[ ]?([-+*/x×−–÷])[ ]?"
_ENDING = rf"(?:{_UNIT}(?:/[a-z]{{2,12}}+)?|/[a-z]{{2,12}}+)?"
_MORE = rf"(?>(?:[ ]?[-+*/x×−–÷][ ]?{_OPERAND})*)"
_LEFT = re.compile(rf"(\$?)({_NUM}){_ENDING}{_SIGN}(\$?)({_NUM}){_ENDING}({_MORE})[ ]?\Z")
_RIGHT = re.compile(
    rf"[ ]?(\$?)({_NUM})"
    r"(?=[.,]?\s*\Z|[.,]?\n|[ /](?![A-Za-z'’ /-]*\b[xX]\b)[A-Za-z]{2}[A-Za-z'’]*+(?:"
    r"(?>(?:[ /-][A-Za-z'’]++)*)(?:[.,]\s|[.,]?\Z|[.,]?\n)"
    rf"|(?>(?:[ ](?!(?:{_NO_NUMBER})\b)[A-Za-z]{{2,}}+){{1,8}})[ ]\d))"  # another number behind the words
)
_UNITS = re.compile("[a-z]{2}")
_BARS = re.compile(r"÷|/(?![a-z])")
_PIECE = re.compile(rf"(\$?)({_NUM})|[-+*×−–÷]|/(?![A-Za-z])|(?<![A-Za-z])x(?![A-Za-z])")
_SAID = re.compile(r"equals?\b(?=\s[\d$(.\\-])|equal to\b")
_WORDS = re.compile(r"[A-Za-z]{2,}(?: [A-Za-z]{2,})*")
Match = tuple[re.Match[str], re.Match[str], int]
_JOINS = frozenset(("and", "plus", "minus", "times"))
_SIGNS = {"x": "*", "×": "*", "−": "-", "–": "-", "÷": "/"}


def plain_equations(text: str, begin: int, end: int) -> list[Equation] | None:
    """The equations of a text that has only ones of the plain form; None for any other text.

    What it gives is what the grammar gives: tests compare the two.
    """
    found = plain_matches(text, begin, end)
    return None if found is None else equations_from(text, end, found)


def equations_from(text: str, end: int, matches: Sequence[Match]) -> list[Equation]:
    """The equations of what `plain_matches` found."""
    return [_equation(text, end, *match) for match in matches]


class Sum(NamedTuple):
    """A plain equation of two whole numbers: the value of its left side, if it is whole, and the number stated.

    `units` says whether words stand on its left side.
    """

    value: int | None
    stated: int
    units: bool


def plain_sums(text: str, matches: Sequence[Match] | None) -> list[Sum] | None:
    """What `plain_matches` found, computed without building equations; None unless all have two whole numbers."""
    if matches is None:
        return None
    sums = []
    for left, right, _ in matches:
        _, first, sign, _, second, more = left.groups()
        result = right[2]
        if more or sign not in "+-*/x" or not (first.isdecimal() and second.isdecimal() and result.isdecimal()):
            return None
        units = _UNITS.search(text, left.start(), left.end()) is not None
        sums.append(new_tuple(Sum, (_computed(sign, int(first), int(second)), int(result), units)))
    return sums


def _computed(sign: str, a: int, b: int) -> int | None:
    if sign == "+":
        return a + b
    if sign == "-":
        return a - b
    if sign == "/":
        return a // b if b and a % b == 0 else None
    return a * b


def plain_matches(text: str, begin: int, end: int) -> list[Match] | None:
    """Left and right side of every equals sign, and its place; None if one of them is not plain."""
    if text.find("equal", begin, end) >= 0 and _SAID.search(text, begin, end):
        return None
    found = []
    sign = text.find("=", begin, end)
    while sign >= 0:
        window = max(begin, sign - NEAR)
        left = _LEFT.search(text, window, sign)
        if left is None or not _starts(text, begin, window, left.start()):
            window = max(begin, sign - WINDOW)
            left = _LEFT.search(text, window, sign)
            if left is None or not _starts(text, begin, window, left.start()):
                return None
        right = _RIGHT.match(text, sign + 1, end)
        if right is None or (
            (left[0].count("/") > 1 or "÷" in left[0]) and len(_BARS.findall(left[0])) > 1
        ):  # "2 / 1/5": the grammar looks at the spaces
            return None
        found.append((left, right, sign))
        sign = text.find("=", sign + 1, end)
    return found


def _equation(text: str, end: int, left: re.Match[str], right: re.Match[str], sign: int) -> Equation:
    tokens = _tokens(text, left, sign)
    result = _number(right, 1)
    last, stop, stated = result.end, tokens[-1].end, result.value
    assert not isinstance(stated, str), "a number"
    unit_end = sign - 1 if text[sign - 1] == " " else sign
    value = evaluate(tokens)
    first = new_tuple(Side, (tuple(tokens), (), tokens[0].start, stop, unit_end, value))
    second = new_tuple(Side, ((result,), (), result.start, last, last, stated))
    if value == stated:  # nearly always
        return new_tuple(Equation, ((first, second), new_tuple(Site, (first, second, result, stated, 1))))
    equation = equation_of((first, second))
    if equation.site is not None:
        return equation
    units = tuple(_WORDS.findall(left[0]))  # what is not true is judged with its units
    behind = [token for token in tokenize(text, last, min(end, last + WINDOW))[:1] if token.kind == WORDS]
    said = tuple(text[token.start : token.end] for token in behind)
    return equation_of((first._replace(units=units), second._replace(units=said)))


def _tokens(text: str, left: re.Match[str], sign: int) -> list[Token]:
    if left.start(6) < left.end(6):  # more than two operands
        return [_token(found) for found in _PIECE.finditer(text, left.start(), sign)]
    operator = left[3]
    start, end = left.span(3)
    return [
        _number(left, 1),
        new_tuple(Token, (OPERATOR, start, end, _SIGNS.get(operator, operator), 0, 0, False, 0, True)),
        _number(left, 4),
    ]


def _number(found: re.Match[str], group: int) -> Token:
    """The number of a currency group and a digits group."""
    digits = found[group + 1]
    first, last = found.span(group + 1)
    value = number_value(digits)
    return new_tuple(Token, (NUMBER, found.start(group), last, value, first, last, False, _places(digits), True))


def _starts(text: str, begin: int, window: int, start: int) -> bool:
    """Whether an expression begins where it was found: at the beginning, or behind a word that joins nothing to it."""
    if start == begin or text[start - 1] == "\n":
        return True
    if start == window or text[start - 1] != " ":
        return False
    *before, word = text[max(begin, start - 24) : start - 1].rsplit(" ", 2)
    if len(word) > 2 and word.isalpha() and word.isascii() and word not in _JOINS:  # nearly always
        return True
    if word == "of":  # behind a fraction or a percentage it multiplies
        return bool(before) and len(before[-1]) > 1 and before[-1].isalpha()
    if word == "by":
        return before[-1:] != ["divided"]
    word = word.rstrip(",:;.")
    plain = word.replace("'", "").replace("’", "")
    return len(plain) > 1 and plain.isascii() and plain.isalpha() and word not in _JOINS


def _token(found: re.Match[str]) -> Token:
    digits = found[2]
    if digits is None:
        sign = found[0]
        sign = _SIGNS.get(sign, sign)
        return new_tuple(Token, (OPERATOR, found.start(), found.end(), sign, 0, 0, False, 0, True))
    return _number(found, 1)


def _places(digits: str) -> int:
    return 0 if digits.isdecimal() else len(digits.partition(".")[2])
