"""APO-zero: chosen responses up and rejected ones down, each on its own, for data better than the model."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import torch
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class APOZeroParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger saturates sooner, 1/nat")


@register_loss("apo_zero", params=APOZeroParams, needs={Need.REFERENCE}, source="arXiv:2408.06266 Eq. 7")
def apo_zero(scores: Scores, params: APOZeroParams) -> LossOutput:
    """Raise the chosen response above the reference and lower the rejected one below it, independently.

        loss_b = sigmoid(-beta * c_b) + sigmoid(beta * r_b)

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats. Between 0 and 2; gradients vanish at
    both ends, so a response that is far off, in either direction, is left alone.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Source: arXiv:2408.06266 Eq. 7.
    Differs: the paper writes -sigmoid(beta * c); the constant 1 added here makes the loss positive and changes no
        gradient.
    Value 1 at policy = reference. For chosen responses better than the model's own; for worse ones take `apo_down`,
    which equals it where the chosen response stands at the reference.
    """
    chosen, rejected = (params.beta * scores.logratios).unbind(-1)  # [B] each
    # 1 - sigmoid(x) = sigmoid(-x), and the right side keeps its digits for large x
    return LossOutput(
        losses=torch.sigmoid(-chosen) + torch.sigmoid(rejected),
        rewards=(params.beta * scores.logratios).detach(),
    )
