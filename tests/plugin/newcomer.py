"""A stranger's loss: one file, registered from outside of prefopt."""

from __future__ import annotations

from pydantic import Field

from prefopt import LossOutput, LossParams, Need, Scores, register_loss
from prefopt._torch import torch


class NewcomerParams(LossParams):
    sharpness: float = Field(1.0, gt=0, description="slope of the hinge, 1/nat")


@register_loss("newcomer", params=NewcomerParams, needs={Need.REFERENCE}, source="tests/plugin/newcomer.py")
def newcomer(scores: Scores, params: NewcomerParams) -> LossOutput:
    """A softened hinge on the log-ratio gap.

        loss_b = log(1 + exp(1 - sharpness * (c_b - r_b)))

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Source: this file.
    """
    chosen, rejected = scores.logratios.unbind(-1)
    return LossOutput(
        losses=torch.nn.functional.softplus(1 - params.sharpness * (chosen - rejected)),
        rewards=(params.sharpness * scores.logratios).detach(),
    )
