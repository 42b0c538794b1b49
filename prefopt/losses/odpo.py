"""ODPO: DPO that asks for a larger margin where the chosen response is better by more."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.losses._math import score_gap
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

SMALLEST_GAP = 1e-6


class ODPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    alpha: float = Field(
        1.0, ge=0, description="weight of the offset: larger asks for more margin between far scores, dimensionless"
    )
    offset: Literal["log", "gap"] = Field("log", description="logarithm of the score gap, or the gap itself")


@register_loss(
    "odpo", params=ODPOParams, needs={Need.REFERENCE, Need.EXTERNAL}, source="arXiv:2402.10571 (DPO with an offset)"
)
def odpo(scores: Scores, params: ODPOParams) -> LossOutput:
    """Ask for a margin that grows with the gap between the scores of the two responses.

        log:  offset_b = alpha * log(s_c - s_r)
        gap:  offset_b = alpha * (s_c - s_r)
        loss_b = -log sigmoid(beta * (c_b - r_b) - offset_b)

    with c, r the chosen and rejected log-ratios log(policy / reference) in nats and s external scores, the chosen one
    the higher. The logarithm is negative for a gap below 1: such pairs count as easier than DPO has them. For it a gap
    below 1e-6, hence every pair whose scores contradict its label, is taken as 1e-6, which nearly leaves the pair out.

    Shapes: scores [B, 2, T], external [B, 2] -> losses [B], rewards [B, 2].
    Metrics: odpo/offset, offset_b, dimensionless as the reward.
    Source: arXiv:2402.10571.
    Differs: the paper takes pairs with s_c > s_r; the clamp says what happens to others.
    Equals `dpo` at alpha = 0; `offset: gap` equals `refined_dpo` in its margin form with gamma = alpha.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    gap = score_gap(scores)
    offset = params.alpha * (torch.log(gap.clamp(min=SMALLEST_GAP)) if params.offset == "log" else gap)
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected) - offset),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"odpo/offset": offset},
    )
