"""Diversified DPO: unusual good responses count more than typical ones."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.losses._weights import chosen_deviation
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class DDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")


@register_loss("ddpo", params=DDPOParams, needs={Need.REFERENCE, Need.DEVIATION}, source="arXiv:2503.17126")
def ddpo(scores: Scores, params: DDPOParams) -> LossOutput:
    """Weigh each pair by how far its chosen response stands from the other responses to the prompt.

        loss_b = -omega_b * log sigmoid(beta * (c_b - r_b))

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats, and omega the deviation of the chosen
    response over the mean deviation of the prompt's responses, which comes with the data. omega is 0 for the most
    typical response, and its mean over chosen responses need not be 1: the learning rate shifts with it.

    Shapes: scores [B, 2, T], deviation [B, 2] -> losses [B], rewards [B, 2].
    Source: arXiv:2503.17126.
    Differs: the mean is taken over prompts, not over weights, as in the released code. The deviation of the rejected
        response is not read.
    Equals `dpo` at omega = 1.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    return LossOutput(
        losses=-chosen_deviation(scores) * F.logsigmoid(params.beta * (chosen - rejected)),
        rewards=(params.beta * scores.logratios).detach(),
    )
