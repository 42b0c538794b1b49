"""APO-down: both responses down and the rejected one further, for data worse than the model."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import torch
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class APODownParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger saturates sooner, 1/nat")


@register_loss(
    "apo_down",
    params=APODownParams,
    needs={Need.REFERENCE},
    source="arXiv:2408.06266 Eq. 8",
    excused={"pulls_the_right_way": "it lowers the chosen response by design, and the rejected one further"},
)
def apo_down(scores: Scores, params: APODownParams) -> LossOutput:
    """Lower the chosen response below the reference, and the rejected response further.

        loss_b = sigmoid(beta * c_b) + sigmoid(-beta * (c_b - r_b))

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats. Between 0 and 2; gradients vanish at
    both ends.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Source: arXiv:2408.06266 Eq. 8.
    Differs: the paper writes -sigmoid(beta * (c - r)); the constant 1 added here makes the loss positive and changes
        no gradient.
    Value 1 at policy = reference, where the chosen response gets no gradient. Equals `apo_zero`, for data better than
    the model, where the chosen response stands at the reference.
    """
    chosen, rejected = (params.beta * scores.logratios).unbind(-1)  # [B] each
    # 1 - sigmoid(x) = sigmoid(-x), and the right side keeps its digits for large x
    return LossOutput(
        losses=torch.sigmoid(chosen) + torch.sigmoid(rejected - chosen),
        rewards=(params.beta * scores.logratios).detach(),
    )
