"""The short way for the commonest kind of equation; everything else is left to the grammar.

Most steps have only equations like `12 boxes * 8 = 96 pens`: numbers, signs, unit words, one plain result. Reading
them around their equals signs, without looking at the rest of the text, takes a fraction of the time.
"""

import re

from data_tools.equations.equation import Equation, Side, equation_of
from data_tools.equations.expression import evaluate
from data_tools.equations.tokens import NUMBER, OPERATOR, Token, new_tuple, number_value

WINDOW = 80
"""How far to the left an expression is looked for, in characters."""

_NUM = r"(?:[1-9]\d{0,2}(?:,\d{3})++|\d{1,12}+)(?:\.\d{1,9}+)?+"
_NO_UNIT = "plus|minus|times|divided|equals|equal|is|of|and|or|so|then|because|which|that|but|if|where"
_UNIT = rf"(?:[ ](?!(?:{_NO_UNIT})\b)[a-z]{{2,12}}+){{1,2}}+"
_OPERAND = rf"\$?{_NUM}(?:{_UNIT}|/[a-z]{{2,12}}+)?"
_LEFT = re.compile(rf"{_OPERAND}(?:[ ]?[-+*/x×][ ]?{_OPERAND})++[ ]?\Z")
_RIGHT = re.compile(
    rf"[ ]?(\$?)({_NUM})"
    r"(?=[.,]?\s*\Z|[.,]?\n|[ /](?![A-Za-z'’ /]*\b[xX]\b)[A-Za-z]{2}[A-Za-z'’]*+(?:[ /][A-Za-z'’]++)*+"
    r"(?:[.,]\s|[.,]?\Z|[.,]?\n))"
)
_PIECE = re.compile(rf"(\$?)({_NUM})|(?<![A-Za-z])[-+*/x×](?![A-Za-z])")
_SAID = re.compile(r"equals?\b(?=\s[\d$(.\\-])|equal to\b")
_JOINS = frozenset(("and", "by", "plus", "minus", "times"))
_SIGNS = {"x": "*", "×": "*"}


def plain_equations(text: str, begin: int, end: int) -> list[Equation] | None:
    """The equations of a text that has only true ones of the plain form; None for any other text.

    What it gives is what the grammar gives: tests compare the two.
    """
    if text.find("equal", begin, end) >= 0 and _SAID.search(text, begin, end):
        return None
    equations: list[Equation] = []
    sign = text.find("=", begin, end)
    while sign >= 0:
        equation = _equation(text, begin, sign, end)
        if equation is None:
            return None
        equations.append(equation)
        sign = text.find("=", sign + 1, end)
    return equations


def _equation(text: str, begin: int, sign: int, end: int) -> Equation | None:
    window = max(begin, sign - WINDOW)
    left, right = _LEFT.search(text, window, sign), _RIGHT.match(text, sign + 1, end)
    if left is None or right is None or not _starts(text, begin, window, left.start()):
        return None
    tokens = [_token(found) for found in _PIECE.finditer(text, left.start(), sign)]
    if sum(token.value == "/" for token in tokens) > 1:  # "2 / 1/5": the grammar looks at the spaces
        return None
    value = evaluate(tokens)
    first, last = right.span(2)
    digits = right[2]
    result = Token(NUMBER, right.start(1), last, number_value(digits), first, last, False, _places(digits))
    assert not isinstance(result.value, str), "a number"
    stop = tokens[-1].end
    equation = equation_of(
        (
            Side(tuple(tokens), (), tokens[0].start, stop, len(text[stop:sign].rstrip()) + stop, value),
            Side((result,), (), result.start, last, last, result.value),
        )
    )
    return equation if equation.site is not None else None  # what is false has to be read with its units


def _starts(text: str, begin: int, window: int, start: int) -> bool:
    """Whether an expression begins where it was found: at the beginning, or behind a word that joins nothing to it."""
    if start == begin or text[start - 1] == "\n":
        return True
    if start == window or text[start - 1] != " ":
        return False
    *before, word = text[max(begin, start - 24) : start - 1].split(" ")
    if word == "of":  # behind a fraction or a percentage it multiplies
        return bool(before) and len(before[-1]) > 1 and before[-1].isalpha()
    word = word.rstrip(",:")
    return len(word) > 1 and word.isascii() and word.isalpha() and word not in _JOINS


def _token(found: re.Match[str]) -> Token:
    digits = found[2]
    if digits is None:
        sign = found[0]
        sign = _SIGNS.get(sign, sign)
        return new_tuple(Token, (OPERATOR, found.start(), found.end(), sign, 0, 0, False, 0, True))
    first, last = found.span(2)
    value = number_value(digits)
    return new_tuple(Token, (NUMBER, found.start(), last, value, first, last, False, _places(digits), True))


def _places(digits: str) -> int:
    return 0 if digits.isdecimal() else len(digits.partition(".")[2])
