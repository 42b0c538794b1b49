"""The kinds of errors in equations, by name: what each does, how its parameters are drawn, how often it is tried."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from data_tools.inject import changes, draws
from data_tools.inject.changes import Params, Scene
from data_tools.inject.edits import Change


@dataclass(frozen=True)
class Kind:
    """A kind of error in an equation, which needs an expression of at least so many `tokens`."""

    name: str
    family: str
    apply: Callable[[Scene, Params], Change | None]
    draw: Callable[[Scene, random.Random], Params | None]
    weight: float = 1.0
    tokens: int = 3


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("result_offset", "REPLACE", changes.result_offset, draws.draw_offset, weight=0.6),
        Kind("sign_error", "REPLACE", changes.sign_error, draws.draw_sign),
        Kind("precedence_error", "REPLACE", changes.precedence_error, draws.draw_precedence, weight=50, tokens=5),
        Kind("digit_change", "REPLACE", changes.digit_change, draws.draw_digit, weight=0.6),
        Kind("digit_transpose", "SWAP", changes.digit_transpose, draws.draw_transpose, weight=8),
        Kind("operand_substitute", "REPLACE", changes.operand_substitute, draws.draw_substitute, weight=0.8),
        Kind("operand_swap", "SWAP", changes.operand_swap, draws.draw_swap, weight=20),
        Kind("operator_flip", "REPLACE", changes.operator_flip, draws.draw_flip, weight=3),
        Kind("dropped_term", "DELETE", changes.dropped_term, draws.draw_term, weight=4, tokens=5),
        Kind("dropped_factor", "DELETE", changes.dropped_factor, draws.draw_factor, weight=8, tokens=5),
        Kind("unit_error", "REPLACE", changes.unit_error, draws.draw_unit, weight=20),
    )
}
"""Errors in equations, whose falsehood can be computed. Weights are larger for kinds that apply more rarely."""

UNCHECKED = ("relation_flip", "dropped_step")
"""Errors in words: no computation shows that the step is wrong, so they are made only when asked for."""
