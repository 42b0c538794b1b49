"""What each kind of error does to an equation. Deterministic: the same parameters make the same error.

A function gives None where the error would change nothing or makes no sense. Operands are counted from 0; operator i
stands between operands i and i + 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from data_tools.equations import NumberStyle, Site, Token, Value, evaluate, format_like, left_to_right, number_value
from data_tools.inject.background import Background, looks_alike
from data_tools.inject.edits import Change, Replacement, digits_of, hundredth, with_digits, with_result
from data_tools.inject.notation import operator_sign

Params = Mapping[str, Any]


class Scene(NamedTuple):
    """Where an error is made: one true equation of a text, and what is known around it.

    `step` is the text of the step, `others` are numbers that a confused reader could take instead: the problem's and
    those of earlier steps. With `plausible`, results that do not look like the right one are not worth the work.
    """

    site: Site
    background: Background
    step: str = ""
    others: tuple[Value, ...] = ()
    plausible: bool = False

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

    def takes(self, tokens: Sequence[Token]) -> bool:
        """Whether another expression has another value, and a plausible one where that is asked for."""
        return self._other_value(tokens) is not None

    def recomputed(self, tokens: Sequence[Token], replacements: Iterable[Replacement]) -> Change | None:
        """The change to another expression and its value; None if it has none, the old one, or no plausible one."""
        value = self._other_value(tokens)
        return None if value is None else with_result(self.text, self.site, value, replacements, self.style)

    def _other_value(self, tokens: Sequence[Token]) -> Value | None:
        value, old = evaluate(tokens), self.site.expression.value
        if value is None or old is None or value == old:
            return None
        if self.plausible and not self.site.result.percent and not looks_alike(old, value, self.background):
            return None
        return value


class Factor(NamedTuple):
    """What a conversion factor is confused with, the usual confusion first, and the words that show that it is one."""

    confused: tuple[str, ...]
    words: re.Pattern[str]


_FACTORS = (
    ("60", "100 24 12 30", "minute|hour|second"),
    ("24", "12 60 30 20", "hour|day"),
    ("7", "5 12 24 30", "week|day"),
    ("12", "10 7 24 30 60 52", "month|year|dozen|inch|inche|foot|feet"),
    ("1000", "100", "gram|kilogram|meter|metre|kilometer|kilometre|liter|litre|milliliter|kg|km|ml|ton"),
    ("100", "10 60 12 1000", "percent|cent|dollar|cm|meter|metre"),
    ("365", "360 52", "day|year"),
    ("52", "50 12", "week|year"),
    ("16", "12 10 8", "ounce|pound|oz|lb"),
)


def _words(words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{words})s?\b", re.IGNORECASE)


UNIT_FACTORS: Mapping[str, Factor] = {
    factor: Factor(tuple(confused.split()), _words(words)) for factor, confused, words in _FACTORS
}
"""Conversion factors. Each is confused with round numbers and with other factors, in both directions: were 60 always
100, roundness alone would tell."""

UNIT_WORDS = re.compile("|".join(words for _, _, words in _FACTORS))
"""A first look for any of the words, in small letters and therefore fast."""


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
    """A conversion factor is confused with another: with `to`, or as most often."""
    number = scene.numbers[params["operand"]]
    if not multiplies(scene.tokens, number):
        return None
    wrong = UNIT_FACTORS.get(digits_of(scene.text, number).replace(",", ""))
    if wrong is None or not wrong.words.search(scene.step or scene.text):
        return None
    return _operand(scene, number, params.get("to", wrong.confused[0]))


def operand_swap(scene: Scene, params: Params) -> Change | None:
    """Two operands change places."""
    first, second = scene.numbers[params["i"]], scene.numbers[params["j"]]
    if not (first.bare and second.bare):
        return None
    texts = digits_of(scene.text, first), digits_of(scene.text, second)
    swap = {id(first): with_digits(first, texts[1]), id(second): with_digits(second, texts[0])}
    tokens = [swap.get(id(token), token) for token in scene.tokens]
    replacements = (Replacement(first.first, first.last, texts[1]), Replacement(second.first, second.last, texts[0]))
    return scene.recomputed(tokens, replacements)


def _operand(scene: Scene, number: Token, digits: str) -> Change | None:
    """The operand with other digits, and the result that follows; None for a leading zero that was not there."""
    if not number.bare or (digits[0] == "0" and digits[1:2].isdigit()):
        return None
    tokens = [with_digits(number, digits) if token is number else token for token in scene.tokens]
    replacement = Replacement(number.first, number.last, digits)
    return scene.recomputed(tokens, (replacement,))


# ------------------------------------------------------------------------------------------- the set-up is wrong


def operator_flip(scene: Scene, params: Params) -> Change | None:
    """An operator is another: + for -, * for /, + for *."""
    operators = binary(scene.tokens)
    operator = operators[params["op"]]
    if not operator.bare:
        return None
    new = operator._replace(value=params["to"])
    tokens = [new if token is operator else token for token in scene.tokens]
    sign = operator_sign(scene.text, operator, params["to"])
    return scene.recomputed(tokens, (Replacement(operator.start, operator.end, sign),))


def dropped_term(scene: Scene, params: Params) -> Change | None:
    """An additive term is forgotten together with its sign."""
    tokens = scene.tokens
    starts = term_starts(tokens)
    if not 0 < params["term"] <= len(starts):
        return None
    start = starts[params["term"] - 1]
    end = starts[params["term"]] if params["term"] < len(starts) else len(tokens)
    return _dropped(scene, start, end)


def dropped_factor(scene: Scene, params: Params) -> Change | None:
    """A factor or divisor is forgotten together with its sign."""
    number = scene.numbers[params["operand"]]
    at = next(at for at, token in enumerate(scene.tokens) if token is number)
    if not is_factor(scene.tokens, at):
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
    return scene.recomputed(left, (Replacement(first, last, ""),)) if binary(left) else None


def extra_term(scene: Scene, params: Params) -> Change | None:
    """Another number is added or taken away, which does not belong there: what `dropped_term` undoes."""
    return _extended(scene, params)


def extra_factor(scene: Scene, params: Params) -> Change | None:
    """Another number multiplies or divides, which does not belong there: what `dropped_factor` undoes."""
    return _extended(scene, params)


def _extended(scene: Scene, params: Params) -> Change | None:
    """The expression with operator `op` and number `value` behind it, written like its last operator and number."""
    tokens, text = scene.tokens, scene.text
    value, last, operator = number_value(str(params["value"])), tokens[-1], binary(tokens)[-1]
    if last.kind != "n" or not (last.bare and operator.bare) or last.percent:
        return None
    at = tokens.index(operator)
    around = text[tokens[at - 1].end : operator.start], text[operator.end : tokens[at + 1].start]
    left, right = (" " * gap.isspace() for gap in around)
    digits = format_like(value, digits_of(text, last) if isinstance(value, int) else "1.01", scene.style)
    new = left + operator_sign(text, operator, params["op"]) + right + text[last.start : last.first] + digits
    sign = Token("o", last.end, last.end, params["op"])
    longer = [*tokens, sign, with_digits(last, digits)]
    return scene.recomputed(longer, (Replacement(last.end, last.end, new),))


def binary(tokens: Sequence[Token]) -> list[Token]:
    """Operators between operands; a sign in front of a number is none."""
    return [t for at, t in enumerate(tokens) if t.kind == "o" and at > 0 and tokens[at - 1].kind in "n)"]


def term_starts(tokens: Sequence[Token]) -> list[int]:
    """Where additive terms after the leading one start, outside brackets."""
    depth, starts = 0, []
    for at, token in enumerate(tokens):
        depth += (token.kind == "(") - (token.kind == ")")
        if depth == 0 and token.kind == "o" and token.value in ("+", "-") and at > 0 and tokens[at - 1].kind in "n)":
            starts.append(at)
    return starts


def is_factor(tokens: Sequence[Token], at: int) -> bool:
    """Whether a token is an operand that can go together with the product or quotient sign before it."""
    before = tokens[at - 1] if at else None
    powered = at + 1 < len(tokens) and tokens[at + 1].value == "^"
    return before is not None and before.bare and before.kind == "o" and before.value in ("*", "/") and not powered


def multiplies(tokens: Sequence[Token], number: Token) -> bool:
    """Whether a number stands next to a product or quotient sign."""
    at = next(at for at, token in enumerate(tokens) if token is number)
    return any(token.value in ("*", "/") for token in (*tokens[max(at - 1, 0) : at], *tokens[at + 1 : at + 2]))
