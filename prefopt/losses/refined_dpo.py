"""Refined DPO (experimental): DPO that listens to the scores of an external reward model or judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.losses._math import score_gap
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class RefinedDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    variant: Literal["margin", "soft_label"] = Field(
        "margin", description="scores shift the margin that is asked for, or soften the label"
    )
    gamma: float = Field(
        1.0, ge=0, description="weight of the score gap, as scores come, in the margin that is asked for, dimensionless"
    )
    tau: float = Field(
        1.0,
        gt=0,
        description="score gap, as scores come, that is a clear preference: larger softens labels, dimensionless",
    )

    def unused(self) -> Mapping[str, str]:
        if self.variant == "margin":
            return {"tau": "only `variant: soft_label` reads it"}
        return {"gamma": "only `variant: margin` reads it"}


@register_loss(
    "refined_dpo",
    params=RefinedDPOParams,
    needs={Need.REFERENCE, Need.EXTERNAL},
    source="after arXiv:2402.08005; experimental, its equation could not be verified",
)
def refined_dpo(scores: Scores, params: RefinedDPOParams) -> LossOutput:
    """Experimental. Let badly made pairs do less harm, by what an external judge says of each response.

        h      = beta * (c_b - r_b)
        margin:      loss_b = -log sigmoid(h - gamma * (s_c - s_r))
        soft_label:  loss_b = -q log sigmoid(h) - (1 - q) log sigmoid(-h),    q = sigmoid((s_c - s_r) / tau)

    with c, r the chosen and rejected log-ratios log(policy / reference) in nats and s the scores. With `margin` a pair
    whose scores favour the chosen response must be set further apart, and one whose scores contradict the label is
    nearly left alone; with `soft_label` such a pair is turned around. Scores need a common scale before gamma or tau
    mean anything.

    Shapes: scores [B, 2, T], external [B, 2] -> losses [B], rewards [B, 2].
    Metrics: refined_dpo/score_gap, s_c - s_r.
    Source: arXiv:2402.08005 for the idea.
    Differs: the equation of the paper could not be verified, and its authors published no training code. Both forms are
        derived: `margin` by adding gamma * s to the reward of the KL-regularised problem, `soft_label` by taking the
        scores for a Bradley-Terry model. Claim no parity with the paper.
    Equals `dpo` at gamma = 0, or for scores that leave no doubt (q = 1); `odpo` with `offset: gap` is the margin form.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    h = params.beta * (chosen - rejected)
    gap = score_gap(scores)
    if params.variant == "margin":
        losses = -F.logsigmoid(h - params.gamma * gap)
    else:
        # log sigmoid(-h) = log sigmoid(h) - h, and 1 - sigmoid(x) = sigmoid(-x)
        losses = -F.logsigmoid(h) + torch.sigmoid(-gap / params.tau) * h
    return LossOutput(
        losses=losses,
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"refined_dpo/score_gap": gap},
    )
