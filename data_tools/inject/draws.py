"""Parameters of errors by chance: what is drawn looks like what was there before, so that looks give nothing away."""

from __future__ import annotations

import math
import random
from fractions import Fraction

from data_tools.equations import Value, format_like
from data_tools.inject.changes import UNIT_FACTORS, Params, Scene, is_factor, multiplies, term_starts
from data_tools.inject.edits import digits_of
from data_tools.inject.notation import flipped


def draw_offset(scene: Scene, rng: random.Random) -> Params | None:
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


def draw_sign(scene: Scene, rng: random.Random) -> Params | None:
    """Only where negative numbers occur, so that the sign is no giveaway."""
    return {} if scene.background.negatives and scene.site.value != 0 else None


def draw_precedence(scene: Scene, rng: random.Random) -> Params | None:
    """Only where precedence matters."""
    signs = {token.value for token in scene.tokens}
    return {} if signs & {"+", "-"} and signs & {"*", "/"} else None


def draw_digit(scene: Scene, rng: random.Random) -> Params | None:
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


def draw_transpose(scene: Scene, rng: random.Random) -> Params | None:
    """Neighbours that are no zeros at the end."""
    found = []
    for operand, number in enumerate(scene.numbers):
        digits = digits_of(scene.text, number).replace(",", "").replace(".", "").rstrip("0") if number.bare else ""
        if len(digits) > 1:
            found += [(operand, at) for at in range(len(digits) - 1) if digits[at] != digits[at + 1]]
    if not found:
        return None
    operand, position = rng.choice(found)
    return {"operand": operand, "position": position}


def draw_substitute(scene: Scene, rng: random.Random) -> Params | None:
    """A number that the problem or an earlier step has, for any operand."""
    operand = rng.randrange(len(scene.numbers))
    old = scene.numbers[operand]
    whole = isinstance(old.value, int) or old.percent
    others = [v for v in scene.others if v != old.value and v > 0 and not (whole and type(v) is not int)]
    if not others or not old.bare or old.percent:
        return None
    value = rng.choice(others)
    return {"operand": operand, "value": format_like(value, "1" if isinstance(value, int) else "1.01")}


def draw_unit(scene: Scene, rng: random.Random) -> Params | None:
    """A conversion factor with the words of its units, and one that it is confused with."""
    step = scene.step or scene.text
    digits = [digits_of(scene.text, number).replace(",", "") for number in scene.numbers]
    found = [
        at
        for at, number in enumerate(scene.numbers)
        if digits[at] in UNIT_FACTORS
        and multiplies(scene.tokens, number)
        and UNIT_FACTORS[digits[at]].words.search(step)
    ]
    if not found:
        return None
    operand = rng.choice(found)
    return {"operand": operand, "to": rng.choice(UNIT_FACTORS[digits[operand]].confused)}


def draw_swap(scene: Scene, rng: random.Random) -> Params | None:
    """Two operands between which an exchange may matter."""
    numbers = scene.numbers
    signs = {token.value for token in scene.tokens if token.kind == "o"}
    if len(numbers) < 2 or signs in ({"+"}, {"*"}):  # nothing would change
        return None
    if len(numbers) == 2 and signs == {"-"} and not scene.background.negatives:
        return None
    i, j = sorted(rng.sample(range(len(numbers)), 2))
    return {"i": i, "j": j}


def draw_flip(scene: Scene, rng: random.Random) -> Params | None:
    """An operator and what it is mistaken for."""
    found, tokens, op = [], list(scene.tokens), 0
    for at, token in enumerate(scene.tokens):
        if token.kind != "o" or at == 0 or tokens[at - 1].kind not in "n)":
            continue
        for to in flipped.get(str(token.value), ()) if token.bare else ():
            tokens[at] = token._replace(value=to)
            if scene.takes(tokens):
                found.append({"op": op, "to": to})
        tokens[at], op = token, op + 1
    return rng.choice(found) if found else None


def draw_term(scene: Scene, rng: random.Random) -> Params | None:
    """A term that is not the first."""
    count = len(term_starts(scene.tokens)) if len(scene.tokens) > 4 else 0  # an operator has to be left
    return {"term": rng.randrange(count) + 1} if count else None


def draw_extra_term(scene: Scene, rng: random.Random) -> Params | None:
    """A number that the problem or an earlier step has, to be added or taken away."""
    return _extra(scene, rng, "+-")


def draw_extra_factor(scene: Scene, rng: random.Random) -> Params | None:
    """A number that the problem or an earlier step has, to multiply or divide by."""
    return _extra(scene, rng, "*/")


def _extra(scene: Scene, rng: random.Random, signs: str) -> Params | None:
    """A number and a sign; whole numbers behind whole numbers, and none that the expression has already."""
    taken = {number.value for number in scene.numbers}
    whole = isinstance(scene.site.value, int)
    others = [v for v in scene.others if v not in taken and v > 1 and not (whole and type(v) is not int)]
    if not others:
        return None
    value = rng.choice(others)
    return {"op": rng.choice(signs), "value": format_like(value, "1" if isinstance(value, int) else "1.01")}


def draw_factor(scene: Scene, rng: random.Random) -> Params | None:
    """A factor that is not the first of its product."""
    tokens = scene.tokens
    if len(tokens) < 5:
        return None
    operands = [at for at, token in enumerate(tokens) if token.kind == "n"]
    found = [place for place, at in enumerate(operands) if is_factor(tokens, at)]
    return {"operand": rng.choice(found)} if found else None
