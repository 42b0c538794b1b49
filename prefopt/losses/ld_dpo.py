"""LD-DPO: tokens beyond the shorter response's length count less."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class LDDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    ld_alpha: float = Field(
        0.5, ge=0, le=1, description="weight of tokens beyond the length both responses have, dimensionless"
    )


@register_loss(
    "ld_dpo",
    params=LDDPOParams,
    needs={Need.REFERENCE, Need.TOKENS},
    source="arXiv:2409.06411 (length-desensitised DPO)",
)
def ld_dpo(scores: Scores, params: LDDPOParams) -> LossOutput:
    """DPO in which the excess length of the longer response has a reduced weight.

        c_b    = sum_t weight_t * log(policy / reference)(chosen token t),  r_b alike
        weight = 1 for the first min(n_c, n_r) scored tokens, ld_alpha beyond
        loss_b = -log sigmoid(beta * (c_b - r_b))

    with n_c, n_r the lengths of chosen and rejected in tokens, and log-ratios in nats.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (beta times the whole log-ratio, unweighted).
    Metrics: ld_dpo/excess, the tokens of the longer response beyond the shorter one.
    Source: arXiv:2409.06411.
    Differs: one public port weighs the policy's tokens only, and then starts away from log 2; here policy and reference
        have the same weights.
    Equals `dpo` at ld_alpha = 1, and for responses of equal length.
    """
    assert scores.reference is not None  # declared, hence checked before the call
    place = scores.mask.cumsum(-1)  # [B, 2, T], 1 at the first scored token
    shared = scores.mask.sum(-1).min(-1).values  # [B]
    weight = torch.ones_like(scores.policy).masked_fill(place > shared.view(-1, 1, 1), params.ld_alpha)
    # filled before the product: what padding holds may be infinite
    ratios = (scores.policy - scores.reference).masked_fill(~scores.mask, 0)
    chosen, rejected = scores.total(weight * ratios).unbind(-1)
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected)),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"ld_dpo/excess": (scores.mask.sum(-1).max(-1).values - shared).to(scores.policy.dtype)},
    )
