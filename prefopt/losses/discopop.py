"""DiscoPOP: a blend of logistic and exponential loss that was found by search."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.losses._math import EXPONENT
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class DiscoPOPParams(LossParams):
    beta: float = Field(0.05, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    tau: float = Field(
        0.05,
        gt=0,
        description="temperature of the blend, of the margin times beta: smaller switches harder, dimensionless",
    )


@register_loss(
    "discopop",
    params=DiscoPOPParams,
    needs={Need.REFERENCE},
    source="arXiv:2406.08414 Eq. 5",
    excused={
        "pulls_the_right_way": "at tau below 0.1 its formula falls towards negative margins at policy = reference"
    },
)
def discopop(scores: Scores, params: DiscoPOPParams) -> LossOutput:
    """Logistic loss for pairs that are ordered wrongly, exponential loss for those that are ordered rightly.

        h      = beta * (c_b - r_b)
        m      = sigmoid(h / tau)
        loss_b = -(1 - m) * log sigmoid(h) + m * exp(-h)

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats. Not convex, and for small tau not
    monotone: at policy = reference it rises with h for tau below 0.1 and has a minimum at a small negative h, where
    margins may rest. The second term is taken as exp(log m - h), whose exponent is clamped at 80 (only a
    tau above 1 comes there), with zero gradient beyond.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Metrics: discopop/blend, m, the share of the exponential loss.
    Source: arXiv:2406.08414 Eq. 5.
    Value (1 + log 2) / 2 at policy = reference. Equals `dpo` far on the wrong side, h << -tau, where m vanishes.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    h = params.beta * (chosen - rejected)
    logistic = -torch.sigmoid(-h / params.tau) * F.logsigmoid(h)
    # in log space: the plain product is 0 * inf for h << 0
    exponential = torch.exp((F.logsigmoid(h / params.tau) - h).clamp(max=EXPONENT))
    return LossOutput(
        losses=logistic + exponential,
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"discopop/blend": torch.sigmoid(h / params.tau).detach()},
    )
