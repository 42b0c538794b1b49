"""The kinds of errors: what each does to an equation or a step, and how it draws its parameters.

`apply` makes one named error and is deterministic; it returns None where the error would change nothing or makes no
sense. `draw` picks parameters for it, or None where the kind does not apply. Operands are counted from 0; operator i
stands between operands i and i + 1.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from data_tools.equations import NumberStyle, Site, Token, Value, format_like, left_to_right, number_value
from data_tools.inject.background import Background
from data_tools.inject.edits import Change, Replacement, digits_of, hundredth, recomputed, with_digits, with_result
from data_tools.inject.notation import flipped, operator_sign

Params = Mapping[str, Any]


class Scene(NamedTuple):
    """Where an error is made: one true equation of a text, and what is known around it.

    `step` is the text of the step, `others` are numbers that a confused reader could take instead: the problem's and
    those of earlier steps.
    """

    site: Site
    background: Background
    step: str = ""
    others: tuple[Value, ...] = ()

    @property
    def text(self) -> str:
        """The whole solution; tokens have their places in it."""
        return self.background.solution

    @property
    def style(self) -> NumberStyle:
        """How long numbers are printed."""
        return self.background.style

    @property
    def numbers(self) -> list[Token]:
        """Operands of the expression, in the order of the text."""
        return self.site.expression.numbers

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The expression."""
        return self.site.expression.tokens


@dataclass(frozen=True)
class Kind:
    """A kind of error in an equation, which needs an expression of at least so many `tokens`."""

    name: str
    family: str
    apply: Callable[[Scene, Params], Change | None]
    draw: Callable[[Scene, random.Random], Params | None]
    weight: float = 1.0
    tokens: int = 3


# ------------------------------------------------------------------------------------------- the result is misstated


def result_offset(scene: Scene, params: Params) -> Change | None:
    """The result is off by `delta`, given in units of what is printed."""
    delta = params["delta"]
    return _stated(scene, scene.site.value + (hundredth(delta) if scene.site.result.percent else delta))


def sign_error(scene: Scene, params: Params) -> Change | None:
    """The result has the other sign."""
    return _stated(scene, -scene.site.value)


def precedence_error(scene: Scene, params: Params) -> Change | None:
    """The result is what one gets from left to right, with no regard to precedence."""
    signs = {token.value for token in scene.tokens}
    value = left_to_right(scene.tokens) if signs & {"+", "-"} and signs & {"*", "/"} else None
    if value is None or value == scene.site.expression.value:
        return None
    return with_result(scene.text, scene.site, value, style=scene.style, visible=True)


def _stated(scene: Scene, value: Value) -> Change | None:
    return with_result(scene.text, scene.site, value * scene.site.scale, style=scene.style, visible=True)


# ------------------------------------------------------------------------------------------- an operand is misread


def digit_change(scene: Scene, params: Params) -> Change | None:
    """One digit of one operand is another."""
    number = scene.numbers[params["operand"]]
    digits = digits_of(scene.text, number)
    places = [at for at, character in enumerate(digits) if character.isdigit()]
    at, digit = places[params["position"]], str(params["digit"])
    return _operand(scene, number, digits[:at] + digit + digits[at + 1 :])


def digit_transpose(scene: Scene, params: Params) -> Change | None:
    """Two unequal neighbouring digits of an operand change places."""
    number = scene.numbers[params["operand"]]
    digits = digits_of(scene.text, number)
    at = [at for at, character in enumerate(digits) if character.isdigit()][params["position"]]
    if not digits[at + 1 : at + 2].isdigit():
        return None
    return _operand(scene, number, digits[:at] + digits[at + 1] + digits[at] + digits[at + 2 :])


def operand_substitute(scene: Scene, params: Params) -> Change | None:
    """An operand is replaced by another number of the problem or of an earlier step."""
    number = scene.numbers[params["operand"]]
    value = number_value(str(params["value"]))
    return _operand(scene, number, format_like(value, digits_of(scene.text, number), scene.style))


def unit_error(scene: Scene, params: Params) -> Change | None:
    """A conversion factor is confused with another."""
    number = scene.numbers[params["operand"]]
    if not _multiplies(scene.tokens, number):
        return None
    wrong = UNIT_FACTORS.get(digits_of(scene.text, number).replace(",", ""))
    if wrong is None or not wrong[1].search(scene.step or scene.text):
        return None
    return _operand(scene, number, wrong[0])


def operand_swap(scene: Scene, params: Params) -> Change | None:
    """Two operands change places."""
    first, second = scene.numbers[params["i"]], scene.numbers[params["j"]]
    if not (first.bare and second.bare):
        return None
    texts = digits_of(scene.text, first), digits_of(scene.text, second)
    swap = {id(first): with_digits(first, texts[1]), id(second): with_digits(second, texts[0])}
    tokens = [swap.get(id(token), token) for token in scene.tokens]
    replacements = (Replacement(first.first, first.last, texts[1]), Replacement(second.first, second.last, texts[0]))
    return recomputed(scene.text, scene.site, tokens, replacements, scene.style)


def _operand(scene: Scene, number: Token, digits: str) -> Change | None:
    """The operand with other digits, and the result that follows; None for a leading zero that was not there."""
    if not number.bare or (digits[0] == "0" and digits[1:2].isdigit()):
        return None
    tokens = [with_digits(number, digits) if token is number else token for token in scene.tokens]
    replacement = Replacement(number.first, number.last, digits)
    return recomputed(scene.text, scene.site, tokens, (replacement,), scene.style)


# ------------------------------------------------------------------------------------------- the set-up is wrong


def operator_flip(scene: Scene, params: Params) -> Change | None:
    """An operator is another: + for -, * for /, + for *."""
    operators = _binary(scene.tokens)
    operator = operators[params["op"]]
    if not operator.bare:
        return None
    new = operator._replace(value=params["to"])
    tokens = [new if token is operator else token for token in scene.tokens]
    sign = operator_sign(scene.text, operator, params["to"])
    return recomputed(scene.text, scene.site, tokens, (Replacement(operator.start, operator.end, sign),), scene.style)


def dropped_term(scene: Scene, params: Params) -> Change | None:
    """An additive term is forgotten together with its sign."""
    tokens = scene.tokens
    starts = _term_starts(tokens)
    if not 0 < params["term"] <= len(starts):
        return None
    start = starts[params["term"] - 1]
    end = starts[params["term"]] if params["term"] < len(starts) else len(tokens)
    return _dropped(scene, start, end)


def dropped_factor(scene: Scene, params: Params) -> Change | None:
    """A factor or divisor is forgotten together with its sign."""
    number = scene.numbers[params["operand"]]
    at = next(at for at, token in enumerate(scene.tokens) if token is number)
    if not _is_factor(scene.tokens, at):
        return None
    return _dropped(scene, at - 1, at + 1)


def _dropped(scene: Scene, start: int, end: int) -> Change | None:
    """The expression without tokens start..end-1, and without the unit and the space that belong to them."""
    tokens, text = scene.tokens, scene.text
    if not all(token.bare for token in tokens[start:end]):
        return None
    first = len(text[: tokens[start].start].rstrip())
    last = len(text[: tokens[end].start].rstrip()) if end < len(tokens) else scene.site.expression.unit_end
    if (
        end == len(tokens) and scene.site.expression.start > scene.site.other.start
    ):  # "15 = 5 * 3 apples": the sentence's
        last = tokens[-1].end
    left = [*tokens[:start], *tokens[end:]]
    return recomputed(text, scene.site, left, (Replacement(first, last, ""),), scene.style)


def _binary(tokens: Sequence[Token]) -> list[Token]:
    return [t for at, t in enumerate(tokens) if t.kind == "o" and at > 0 and tokens[at - 1].kind in "n)"]


def _term_starts(tokens: Sequence[Token]) -> list[int]:
    """Where additive terms after the leading one start, outside brackets."""
    depth, starts = 0, []
    for at, token in enumerate(tokens):
        depth += (token.kind == "(") - (token.kind == ")")
        if depth == 0 and token.kind == "o" and token.value in ("+", "-") and at > 0 and tokens[at - 1].kind in "n)":
            starts.append(at)
    return starts


def _is_factor(tokens: Sequence[Token], at: int) -> bool:
    before = tokens[at - 1] if at else None
    powered = at + 1 < len(tokens) and tokens[at + 1].value == "^"
    return before is not None and before.bare and before.kind == "o" and before.value in ("*", "/") and not powered


# ------------------------------------------------------------------------------------------- parameters by chance


def _draw_offset(scene: Scene, rng: random.Random) -> Params | None:
    """±1, ±2, ±10, one unit of a digit place, a lost or extra carry; in units of the last digit that is not a zero.

    Round results stay as round as they are, or the offset would give itself away.
    """
    result = scene.site.result
    digits = digits_of(scene.text, result).replace(",", "")
    places = len(digits.replace(".", "")) - len(digits.replace(".", "").rstrip("0"))
    shift = places - result.places
    unit: Value = 10**shift if shift >= 0 else Fraction(1, 10**-shift)
    whole = len(digits.replace(".", "").lstrip("0")) - places
    place = rng.randrange(max(whole, 1))
    carry = rng.randrange(1, whole) if whole > 1 else 0
    return {"delta": unit * rng.choice((1, 2, 10, 10**place, 10**carry)) * rng.choice((-1, 1))}


def _draw_sign(scene: Scene, rng: random.Random) -> Params | None:
    return {} if scene.background.negatives and scene.site.value != 0 else None


def _draw_precedence(scene: Scene, rng: random.Random) -> Params | None:
    signs = {token.value for token in scene.tokens}
    return {} if signs & {"+", "-"} and signs & {"*", "/"} else None


def _draw_digit(scene: Scene, rng: random.Random) -> Params | None:
    """Any digit but the zeros at the end. First digits are drawn by Benford's law, like those of natural numbers."""
    operand = rng.randrange(len(scene.numbers))
    digits = [c for c in digits_of(scene.text, scene.numbers[operand]) if c.isdigit()]
    position = rng.randrange(len("".join(digits).rstrip("0")) or 1)
    if position == 0:
        choices = [digit for digit in "123456789" if digit != digits[0]]
        digit = rng.choices(choices, [math.log10(1 + 1 / int(digit)) for digit in choices])[0]
    else:
        digit = rng.choice([digit for digit in "0123456789" if digit != digits[position]])
    return {"operand": operand, "position": position, "digit": digit}


def _draw_transpose(scene: Scene, rng: random.Random) -> Params | None:
    """Neighbours that are no zeros at the end. Most numbers begin with a small digit, so most swaps make them larger;
    some of those are passed over, so that larger is not the same as wrong.
    """
    found = []
    for operand, number in enumerate(scene.numbers):
        digits = digits_of(scene.text, number).replace(",", "").replace(".", "").rstrip("0") if number.bare else ""
        found += [(operand, at, digits[at] < digits[at + 1]) for at in range(len(digits) - 1)]
    if not found:
        return None
    operand, position, larger = rng.choice(found)
    return None if larger and rng.random() < PASS_LARGER else {"operand": operand, "position": position}


def _draw_substitute(scene: Scene, rng: random.Random) -> Params | None:
    operand = rng.randrange(len(scene.numbers))
    old = scene.numbers[operand]
    whole = isinstance(old.value, int) or old.percent
    others = [v for v in scene.others if v != old.value and v > 0 and not (whole and isinstance(v, Fraction))]
    if not others or not old.bare or old.percent:
        return None
    value = rng.choice(others)
    return {"operand": operand, "value": format_like(value, "1" if isinstance(value, int) else "1.01")}


def _draw_unit(scene: Scene, rng: random.Random) -> Params | None:
    step = scene.step or scene.text
    found = [
        at
        for at, number in enumerate(scene.numbers)
        if (wrong := UNIT_FACTORS.get(digits_of(scene.text, number).replace(",", "")))
        and _multiplies(scene.tokens, number)
        and wrong[1].search(step)
    ]
    return {"operand": rng.choice(found)} if found else None


def _draw_swap(scene: Scene, rng: random.Random) -> Params | None:
    numbers = scene.numbers
    signs = {token.value for token in scene.tokens if token.kind == "o"}
    if len(numbers) < 2 or signs in ({"+"}, {"*"}):  # nothing would change
        return None
    if len(numbers) == 2 and signs == {"-"} and not scene.background.negatives:
        return None
    i, j = sorted(rng.sample(range(len(numbers)), 2))
    return {"i": i, "j": j}


def _draw_flip(scene: Scene, rng: random.Random) -> Params | None:
    found = [(at, t) for at, t in enumerate(_binary(scene.tokens)) if t.bare and t.value in flipped]
    if not found:
        return None
    at, operator = rng.choice(found)
    old, new = str(operator.value), rng.choice(flipped[str(operator.value)])
    return None if rng.random() < PASS_FLIP.get((old, new), 0) else {"op": at, "to": new}


def _draw_term(scene: Scene, rng: random.Random) -> Params | None:
    count = len(_term_starts(scene.tokens)) if len(scene.tokens) > 4 else 0  # an operator has to be left
    return {"term": rng.randrange(count) + 1} if count else None


def _draw_factor(scene: Scene, rng: random.Random) -> Params | None:
    tokens = scene.tokens
    if len(tokens) < 5:
        return None
    operands = [at for at, token in enumerate(tokens) if token.kind == "n"]
    found = [place for place, at in enumerate(operands) if _is_factor(tokens, at)]
    return {"operand": rng.choice(found)} if found else None


PASS_LARGER = 0.7
"""Share of transpositions to a larger number that are passed over."""

PASS_FLIP: Mapping[tuple[str, str], float] = {("-", "+"): 0.7, ("*", "+"): 0.65, ("/", "*"): 0.6}
"""Share of flips that are passed over, because their inverses make plausible results more rarely: so that no operator
is more frequent in wrong texts than in right ones. Measured on word problems."""

UNIT_FACTORS: Mapping[str, tuple[str, re.Pattern[str]]] = {
    factor: (confused, re.compile(rf"\b(?:{words})s?\b", re.IGNORECASE))
    for factor, confused, words in (
        ("60", "100", "minute|hour|second"),
        ("24", "12", "hour|day"),
        ("7", "5", "week|day"),
        ("12", "10", "month|year|dozen|inch|inche|foot|feet"),
        ("1000", "100", "gram|kilogram|meter|metre|kilometer|kilometre|liter|litre|milliliter|kg|km|ml|ton"),
        ("100", "10", "percent|cent|dollar|cm|meter|metre"),
        ("365", "360", "day|year"),
        ("52", "50", "week|year"),
        ("16", "12", "ounce|pound|oz|lb"),
    )
}
"""A conversion factor, the factor it is confused with, and the words that show that it is one."""


def _multiplies(tokens: Sequence[Token], number: Token) -> bool:
    """Whether a number stands next to a product or quotient sign."""
    at = next(at for at, token in enumerate(tokens) if token is number)
    return any(token.value in ("*", "/") for token in (*tokens[max(at - 1, 0) : at], *tokens[at + 1 : at + 2]))


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("result_offset", "REPLACE", result_offset, _draw_offset, weight=0.6),
        Kind("sign_error", "REPLACE", sign_error, _draw_sign),
        Kind("precedence_error", "REPLACE", precedence_error, _draw_precedence, weight=50, tokens=5),
        Kind("digit_change", "REPLACE", digit_change, _draw_digit, weight=0.6),
        Kind("digit_transpose", "SWAP", digit_transpose, _draw_transpose, weight=8),
        Kind("operand_substitute", "REPLACE", operand_substitute, _draw_substitute, weight=0.8),
        Kind("operand_swap", "SWAP", operand_swap, _draw_swap, weight=20),
        Kind("operator_flip", "REPLACE", operator_flip, _draw_flip, weight=3),
        Kind("dropped_term", "DELETE", dropped_term, _draw_term, weight=4, tokens=5),
        Kind("dropped_factor", "DELETE", dropped_factor, _draw_factor, weight=8, tokens=5),
        Kind("unit_error", "REPLACE", unit_error, _draw_unit, weight=20),
    )
}
"""Errors in equations, whose falsehood can be computed. Weights are larger for kinds that apply more rarely."""

UNCHECKED = ("relation_flip", "dropped_step")
"""Errors in words: no computation shows that the step is wrong, so they are made only when asked for."""
