"""Likelihood displacement: measures as pure functions, and what runs them over a data set.

Measures take tensors and give one number per pair or per token; they know no model and no file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefopt.diagnostics.branch import branch_place as branch_place
    from prefopt.diagnostics.branch import branch_point as branch_point
    from prefopt.diagnostics.coefficients import gradient_coefficients as gradient_coefficients
    from prefopt.diagnostics.displacement import movement as movement
    from prefopt.diagnostics.filters import keep_lowest as keep_lowest
    from prefopt.diagnostics.filters import quantile_window as quantile_window
    from prefopt.diagnostics.greedy import greedy_track as greedy_track
    from prefopt.diagnostics.greedy import pushed_down as pushed_down
    from prefopt.diagnostics.head_gradients import interference as interference
    from prefopt.diagnostics.head_gradients import nthr as nthr
    from prefopt.diagnostics.information import did as did
    from prefopt.diagnostics.information import did_entropy as did_entropy
    from prefopt.diagnostics.information import token_did as token_did
    from prefopt.diagnostics.pairs import compare_tokens as compare_tokens
    from prefopt.diagnostics.positions import position_changes as position_changes
    from prefopt.diagnostics.residual import residual_energy as residual_energy
    from prefopt.diagnostics.similarity import ches as ches
    from prefopt.diagnostics.similarity import last_inner_product as last_inner_product
    from prefopt.diagnostics.similarity import ln_ches as ln_ches
    from prefopt.diagnostics.similarity import mean_cosine as mean_cosine
    from prefopt.diagnostics.similarity import state_sums as state_sums

_ON_FIRST_USE = {
    "branch_place": "branch",
    "branch_point": "branch",
    "ches": "similarity",
    "compare_tokens": "pairs",
    "did": "information",
    "did_entropy": "information",
    "gradient_coefficients": "coefficients",
    "greedy_track": "greedy",
    "interference": "head_gradients",
    "keep_lowest": "filters",
    "last_inner_product": "similarity",
    "ln_ches": "similarity",
    "mean_cosine": "similarity",
    "movement": "displacement",
    "nthr": "head_gradients",
    "position_changes": "positions",
    "pushed_down": "greedy",
    "quantile_window": "filters",
    "residual_energy": "residual",
    "state_sums": "similarity",
    "token_did": "information",
}

__all__ = sorted(_ON_FIRST_USE)


def __getattr__(name: str) -> Any:
    if name in _ON_FIRST_USE:
        return getattr(import_module(f"{__name__}.{_ON_FIRST_USE[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
