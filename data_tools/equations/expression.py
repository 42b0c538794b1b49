"""Exact values of expressions given as tokens: usual precedence, brackets, powers with small exponents."""

from collections.abc import Sequence
from fractions import Fraction

from data_tools.equations.tokens import CLOSE, NUMBER, OPEN, OPERATOR, Token

Value = int | Fraction

MAX_TOKENS = 200
MAX_DEPTH = 20
MAX_EXPONENT = 16
MAX_BITS = 512
"""Beyond these an expression has no value for us: nobody's solution, and no work worth bounding otherwise."""


class _NoValueError(Exception):
    """Division by zero, or beyond the limits, or no expression."""


def evaluate(tokens: Sequence[Token]) -> Value | None:
    """The exact value, or None for a division by zero, a value beyond the limits, or what is no expression."""
    if not tokens or len(tokens) > MAX_TOKENS:
        return None
    if len(tokens) == 3:
        (_, _, _, a, *_), (_, _, _, sign, *_), (_, _, _, b, *_) = tokens
        if type(a) is int and type(b) is int:  # most equations; numbers as long as tokens can be need no bounds here
            if sign == "*":
                return a * b
            if sign == "+":
                return a + b
            if sign == "-":
                return a - b
            if sign == "/":
                return _quotient(a, b) if b else None
    try:
        if len(tokens) == 3 and tokens[0].kind == NUMBER == tokens[2].kind:  # most equations
            return _apply(tokens[1], _number(tokens[0]), _number(tokens[2]))
        value, end = _sum(tokens, 0, 0)
    except _NoValueError:
        return None
    return value if end == len(tokens) else None


def magnitude(value: Value) -> Value:
    """The absolute value."""
    return -value if value < 0 else value


def left_to_right(tokens: Sequence[Token]) -> Value | None:
    """The value without precedence: each operator in the order of the text. None with brackets, powers or signs."""
    if len(tokens) % 2 == 0 or any((t.kind == NUMBER) != (i % 2 == 0) for i, t in enumerate(tokens)):
        return None
    value = _number(tokens[0])
    try:
        for operator, operand in zip(tokens[1::2], tokens[2::2], strict=True):
            value = _apply(operator, value, _number(operand))
    except _NoValueError:
        return None
    return value


def _sum(tokens: Sequence[Token], at: int, depth: int) -> tuple[Value, int]:
    value, at = _product(tokens, at, depth)
    while at < len(tokens) and tokens[at].value in ("+", "-"):
        term, end = _product(tokens, at + 1, depth)
        value, at = _apply(tokens[at], value, term), end
    return value, at


def _product(tokens: Sequence[Token], at: int, depth: int) -> tuple[Value, int]:
    value, at = _signed(tokens, at, depth)
    while at < len(tokens) and tokens[at].value in ("*", "/"):
        factor, end = _signed(tokens, at + 1, depth)
        value, at = _apply(tokens[at], value, factor), end
    return value, at


def _signed(tokens: Sequence[Token], at: int, depth: int) -> tuple[Value, int]:
    negative = False
    while at < len(tokens) and tokens[at].value == "-" and tokens[at].kind == OPERATOR:
        negative, at = not negative, at + 1
    value, at = _power(tokens, at, depth)
    return (-value if negative else value), at


def _power(tokens: Sequence[Token], at: int, depth: int) -> tuple[Value, int]:
    value, at = _operand(tokens, at, depth)
    if at < len(tokens) and tokens[at].value == "^":
        exponent, at = _operand(tokens, at + 1, depth)
        value = _raise(value, exponent)
        if at < len(tokens) and tokens[at].value == "^":  # towers are read differently by different people
            raise _NoValueError
    return value, at


def _operand(tokens: Sequence[Token], at: int, depth: int) -> tuple[Value, int]:
    if at >= len(tokens) or depth > MAX_DEPTH:
        raise _NoValueError
    token = tokens[at]
    if token.kind == NUMBER:
        return _number(token), at + 1
    if token.kind != OPEN:
        raise _NoValueError
    value, at = _sum(tokens, at + 1, depth + 1)
    if at >= len(tokens) or tokens[at].kind != CLOSE:
        raise _NoValueError
    return value, at + 1


def _number(token: Token) -> Value:
    assert not isinstance(token.value, str), "number tokens hold numbers"
    return token.value


def _apply(operator: Token, left: Value, right: Value) -> Value:
    symbol = operator.value
    if symbol == "+":
        value = left + right
    elif symbol == "-":
        value = left - right
    elif symbol == "*":
        value = left * right
    elif symbol == "/" and right:
        value = _quotient(left, right)
    elif symbol == "^":
        value = _raise(left, right)
    else:
        raise _NoValueError
    return _bounded(value)


def _quotient(left: Value, right: Value) -> Value:
    if isinstance(left, int) and isinstance(right, int):
        return Fraction(left, right) if left % right else left // right
    return Fraction(left) / right


def _raise(base: Value, exponent: Value) -> Value:
    if exponent != int(exponent) or magnitude(exponent) > MAX_EXPONENT or (base == 0 and exponent < 0):
        raise _NoValueError
    return _bounded(Fraction(base) ** int(exponent))


def _bounded(value: Value) -> Value:
    if not isinstance(value, int):
        if value.denominator == 1:
            value = value.numerator
        elif value.denominator.bit_length() > MAX_BITS:
            raise _NoValueError
    if value.numerator.bit_length() > MAX_BITS:
        raise _NoValueError
    return value
