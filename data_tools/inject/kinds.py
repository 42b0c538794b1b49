"""The kinds of errors in equations, by name: what each does, how its parameters are drawn, how often it is tried."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from data_tools.inject import changes, draws
from data_tools.inject.background import Background
from data_tools.inject.changes import UNIT_WORDS, Params, Scene
from data_tools.inject.edits import Change


@dataclass(frozen=True)
class Kind:
    """A kind of error in an equation, which needs an expression of at least so many `tokens`.

    `signs` is found in the operators (`signs_in`) and all `hints` in the text of nearly every step that can take it,
    which saves reading the others; `possible` is asked once for each solution. `others` says that the kind wants
    numbers from elsewhere.
    """

    name: str
    family: str
    apply: Callable[[Scene, Params], Change | None]
    draw: Callable[[Scene, random.Random], Params | None]
    weight: float = 1.0
    tokens: int = 3
    signs: re.Pattern[str] | None = None
    hints: tuple[re.Pattern[str], ...] = ()
    others: bool = False
    possible: Callable[[Background], bool] = lambda _: True


def _has_negatives(background: Background) -> bool:
    return background.negatives


_TIMES = "[*/x×·÷]"
_OPERAND = r"\s?\\?[$({]{0,3}[\d.]"
_SIGNS = re.compile(rf"[-+*/x×·÷−–](?={_OPERAND})|=(?:\s?\$?(?:[-−]|\d{{0,12}}\.\d))?|\n")
_LONG = re.compile(r"[^=\n]{2}")
_LONG_PRODUCT = re.compile(rf"[^=\n]{_TIMES}|{_TIMES}[^=\n]")
_MIXED = re.compile(rf"[-+−–][^=\n]*{_TIMES}")
_SWAPS = re.compile(r"[-/÷−–][^=\n]|[^=\n][-/÷−–]|[-/÷−–]=[^=\n]")
_FACTOR = re.compile(
    rf"{_TIMES}\s?\$?(?:60|24|7|12|1,?000|100|365|52|16)(?!\d|[.,]\d)"
    r"|[1-7](?:(?<=6)0|(?<=2)4|(?<=7)|(?<=1)(?:[26]|00|,?000)|(?<=3)65|(?<=5)2)(?!\d|[.,]\d)"
    rf"[^=\n\d]{{0,30}}?{_TIMES}{_OPERAND}"
)
"""Each begins with a set of characters, which makes the search fast; signs in words and LaTeX are not looked for."""


def signs_in(text: str, begin: int, end: int) -> str:
    """The operators in front of operands, the equals signs, and the ends of the lines, in order.

    Behind an equals sign stands what follows it, where that is a minus sign or a number with decimals.
    """
    return "".join(_SIGNS.findall(text, begin, end))


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("result_offset", "REPLACE", changes.result_offset, draws.draw_offset, 0.8),
        Kind("sign_error", "REPLACE", changes.sign_error, draws.draw_sign, 1, possible=_has_negatives),
        Kind("precedence_error", "REPLACE", changes.precedence_error, draws.draw_precedence, 50, 5, _MIXED),
        Kind("digit_change", "REPLACE", changes.digit_change, draws.draw_digit, 0.8),
        Kind("digit_transpose", "SWAP", changes.digit_transpose, draws.draw_transpose, 5),
        Kind("operand_substitute", "REPLACE", changes.operand_substitute, draws.draw_substitute, 1.3, others=True),
        Kind("operand_swap", "SWAP", changes.operand_swap, draws.draw_swap, 2, signs=_SWAPS),
        Kind("operator_flip", "REPLACE", changes.operator_flip, draws.draw_flip, 2),
        Kind("dropped_term", "DELETE", changes.dropped_term, draws.draw_term, 1, 5, _LONG),
        Kind("dropped_factor", "DELETE", changes.dropped_factor, draws.draw_factor, 4, 5, _LONG_PRODUCT),
        Kind("extra_term", "ADD", changes.extra_term, draws.draw_extra_term, 0.22, others=True),
        Kind("extra_factor", "ADD", changes.extra_factor, draws.draw_extra_factor, 0.3, others=True),
        Kind("unit_error", "REPLACE", changes.unit_error, draws.draw_unit, 40, hints=(_FACTOR, UNIT_WORDS)),
    )
}
"""Errors in equations, whose falsehood can be computed. Weights are larger for kinds that apply more rarely."""

UNCHECKED = ("relation_flip", "dropped_step")
"""Errors in words: no computation shows that the step is wrong, so they are made only when asked for."""
