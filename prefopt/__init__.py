"""prefopt: preference optimization of causal language models. Importing it stays cheap; torch comes with first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from prefopt.context import Draw, Gather, StepContext
from prefopt.errors import ConfigError, DataError, PrefoptError, RunError
from prefopt.losses import get_loss, loss_names, pair_loss, register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores, TokenStats

if TYPE_CHECKING:
    from prefopt.config import load_recipe as load_recipe
    from prefopt.train.build import train as train
    from prefopt.train.trainer import PreferenceTrainer as PreferenceTrainer

__version__ = "0.1.0"

_ON_FIRST_USE = {
    "PreferenceTrainer": "prefopt.train.trainer",
    "load_recipe": "prefopt.config",
}

__all__ = [
    "ConfigError",
    "DataError",
    "Draw",
    "Gather",
    "LossOutput",
    "LossParams",
    "Need",
    "PreferenceTrainer",
    "PrefoptError",
    "RunError",
    "Scores",
    "StepContext",
    "TokenStats",
    "get_loss",
    "load_recipe",
    "loss_names",
    "pair_loss",
    "register_loss",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "train":
        return import_module("prefopt.train")  # a package that can be called
    if name in _ON_FIRST_USE:
        return getattr(import_module(_ON_FIRST_USE[name]), name)
    raise AttributeError(f"module 'prefopt' has no attribute '{name}'")
