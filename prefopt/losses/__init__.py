"""The loss registry: each loss a pure function in one file, importable into any trainer."""

from prefopt.losses._objective import Loss, Modifier, Objective, get_loss
from prefopt.losses._pair import pair_loss
from prefopt.losses._registry import (
    LossSpec,
    ModifierSpec,
    broken_plugins,
    loss_names,
    loss_spec,
    modifier_names,
    modifier_spec,
    register_loss,
    register_modifier,
)

__all__ = [
    "Loss",
    "LossSpec",
    "Modifier",
    "ModifierSpec",
    "Objective",
    "broken_plugins",
    "get_loss",
    "loss_names",
    "loss_spec",
    "modifier_names",
    "modifier_spec",
    "pair_loss",
    "register_loss",
    "register_modifier",
]
