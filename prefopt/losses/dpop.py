"""DPO-Positive: DPO that refuses to buy margin by making the chosen response less likely."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class DPOPParams(LossParams):
    beta: float = Field(0.3, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    lam: float = Field(50.0, ge=0, description="price of a chosen response below the reference, dimensionless")


@register_loss("dpop", params=DPOPParams, needs={Need.REFERENCE}, source="arXiv:2402.13228v2 Eq. 3")
def dpop(scores: Scores, params: DPOPParams) -> LossOutput:
    """Penalise every nat by which the chosen response falls below the reference.

        loss_b = -log sigmoid(beta * (c_b - r_b - lam * max(0, -c_b)))

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Metrics: dpop/shortfall, max(0, -c), nats.
    Source: arXiv:2402.13228v2 Eq. 3.
    Differs: version 1 prints the penalty outside the sigmoid; version 2 moved the bracket, and so do we. The slope
        at the kink c = 0, where every pair starts, is that of plain DPO; the paper does not say which it takes.
    Equals `dpo` at lam = 0, and for every pair whose chosen response stands at or above the reference.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    shortfall = torch.relu(-chosen)  # slope 0 at the kink; clamp would give the full slope, maximum half of it
    margin = params.beta * (chosen - rejected - params.lam * shortfall)
    return LossOutput(
        losses=-F.logsigmoid(margin),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"dpop/shortfall": shortfall.detach()},
    )
