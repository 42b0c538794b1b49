"""The loss registry: each loss a pure function in one file, importable into any trainer."""

from prefopt.losses._objective import Loss, Objective, get_loss
from prefopt.losses._pair import pair_loss
from prefopt.losses._registry import LossSpec, broken_plugins, loss_names, loss_spec, register_loss

__all__ = [
    "Loss",
    "LossSpec",
    "Objective",
    "broken_plugins",
    "get_loss",
    "loss_names",
    "loss_spec",
    "pair_loss",
    "register_loss",
]
