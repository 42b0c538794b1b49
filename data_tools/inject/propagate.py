"""Carrying a wrong value forward through later equations to the final answer."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from data_tools.equations import NumberStyle, Reading, Site, Token, Value, evaluate, magnitude
from data_tools.inject.edits import Change, Replacement, print_number, with_value

MAX_DECIMALS = 4
SMALLEST = 3
"""Values below this in magnitude occur too often by chance to say where they come from."""


class RefusedError(Exception):
    """The value cannot be carried forward without guessing; the text says why."""


@dataclass
class Carried:
    """Replacements so far, and what became of each value that changed."""

    replacements: list[Replacement]
    values: dict[Value, Value] = field(default_factory=dict)
    answer: Value | None = None


def chain(
    text: str,
    reading: Reading,
    site: Site,
    change: Change,
    *,
    protected: Collection[Value] = (),
    style: NumberStyle | None = None,
    answer: Token | None = None,
    prose: bool = False,
) -> Carried | None:
    """The change of an equation and everything that follows from it in the equations of `reading`, in order.

    Every later operand with a changed value is replaced and its equation evaluated again; `answer`, the number of the
    final answer, is replaced if its value changed. With `prose`, so are numbers outside of equations behind the edit.

    None where provenance or arithmetic would have to be guessed: a value that is one of `protected` or below 3 in
    magnitude, a negative number behind an operator, a division by zero, more than four decimals, or an equation that
    holds a changed value and cannot be read.
    """
    carried = Carried(list(change.replacements))
    try:
        _record(carried, change.old, change.new, protected)
        for equation in reading.equations:
            if equation.start <= site.start:
                continue
            if equation.site is not None:
                _carry(text, equation.site, carried, protected, style)
            elif any(token.value in carried.values for side in equation.sides for token in side.numbers):
                raise RefusedError("an equation that cannot be edited holds a changed value")
        _check_unread(text, reading, site, carried)
        if answer is not None and answer.start >= site.end:
            _replace_free(text, [answer], carried, style)
            carried.answer = carried.values.get(_number(answer))
        if prose:
            _replace_free(text, [t for t in reading.numbers if t.start >= site.end], carried, style)
    except RefusedError:
        return None
    return carried


def _record(carried: Carried, old: Value, new: Value, protected: Collection[Value]) -> None:
    if old in protected or magnitude(old) < SMALLEST:
        raise RefusedError("the old value may come from somewhere else")
    carried.values[old] = new


def _carry(text: str, site: Site, carried: Carried, protected: Collection[Value], style: NumberStyle | None) -> None:
    """Replace the operands of one later equation, and its result."""
    tokens: list[Token] = []
    replacements: list[Replacement] = []
    for at, token in enumerate(site.expression.tokens):
        new = carried.values.get(_number(token)) if token.kind == "n" else None
        if new is None:
            tokens.append(token)
            continue
        if not token.bare:
            raise RefusedError("a mixed number")
        if new < 0 and at and site.expression.tokens[at - 1].kind == "o":
            raise RefusedError("a negative number behind an operator")
        replacement, printed = print_number(text, token, new * 100 if token.percent else new, style, signed=token)
        tokens.append(with_value(token, printed))
        replacements.append(replacement)
    if not replacements:
        return
    value = evaluate(tokens)
    if value is None or Fraction(value * 10**MAX_DECIMALS).denominator != 1:
        raise RefusedError("a division by zero or too many decimals")
    unit = 100 // site.scale if site.result.percent else 1
    result, printed = print_number(text, site.result, value * unit, style, signed=site.other.tokens[0])
    new = _number(with_value(site.result, printed))
    carried.replacements += replacements
    if new != site.value:
        carried.replacements.append(result)
        _record(carried, site.value, new, protected)


def _check_unread(text: str, reading: Reading, site: Site, carried: Carried) -> None:
    """Refuse when a line behind the edit has an equals sign that could not be read and a number that changed."""
    lines = {_line(text, sign) for sign in reading.unread if sign > site.end}
    if not lines:
        return
    done = {replacement.start for replacement in carried.replacements}
    for token in reading.numbers:
        if token.start <= site.end or token.value not in carried.values:
            continue
        if not {token.first, token.start} & done and _line(text, token.start) in lines:
            raise RefusedError("an equation that could not be read holds a changed value")


def _replace_free(text: str, numbers: Iterable[Token], carried: Carried, style: NumberStyle | None) -> None:
    """Replace numbers with changed values where no equation has done it."""
    done = [(replacement.start, replacement.end) for replacement in carried.replacements]
    for token in numbers:
        new = carried.values.get(_number(token))
        if new is None or not token.bare or any(token.start < end and start < token.end for start, end in done):
            continue
        replacement, _ = print_number(text, token, new * 100 if token.percent else new, style, signed=token)
        carried.replacements.append(replacement)


def _number(token: Token) -> Value:
    assert not isinstance(token.value, str), "number tokens hold numbers"
    return token.value


def _line(text: str, at: int) -> int:
    return text.rfind("\n", 0, at)
