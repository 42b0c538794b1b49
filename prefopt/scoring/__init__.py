"""From a model and a batch to per-token log-probabilities."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefopt.scoring.policy import Scorer as Scorer
    from prefopt.scoring.policy import score as score
    from prefopt.scoring.tokens import token_logps as token_logps

_ON_FIRST_USE = {"Scorer": "policy", "score": "policy", "token_logps": "tokens"}

__all__ = ["Scorer", "score", "token_logps"]


def __getattr__(name: str) -> Any:
    if name in _ON_FIRST_USE:
        return getattr(import_module(f"{__name__}.{_ON_FIRST_USE[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
