"""Robust DPO: unbiased for the clean labels when a known share of the labels is flipped."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class RobustDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    epsilon: float = Field(0.1, ge=0, lt=0.5, description="share of flipped labels in the data, dimensionless")


@register_loss("robust_dpo", params=RobustDPOParams, needs={Need.REFERENCE}, source="arXiv:2403.00409")
def robust_dpo(scores: Scores, params: RobustDPOParams) -> LossOutput:
    """Weigh each pair so that label flips cancel in expectation.

        h      = beta * (c_b - r_b)
        loss_b = [-(1 - eps) log sigmoid(h) + eps log sigmoid(-h)] / (1 - 2 eps)
               = -log sigmoid(h) - eps / (1 - 2 eps) * h

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats. May be negative, and has no lower
    bound: margins grow as long as training goes on.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Source: arXiv:2403.00409.
    Equals `dpo` at epsilon = 0; label smoothing in `dpo` has the opposite sign.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    h = params.beta * (chosen - rejected)
    # log sigmoid(-h) = log sigmoid(h) - h
    return LossOutput(
        losses=-F.logsigmoid(h) - params.epsilon / (1 - 2 * params.epsilon) * h,
        rewards=(params.beta * scores.logratios).detach(),
    )
