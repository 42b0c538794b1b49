"""Direct Preference Optimization, with label smoothing (conservative DPO) and without a reference."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class DPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    label_smoothing: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="assumed share of flipped labels; gives the margin a finite target, dimensionless",
    )
    reference_free: bool = Field(False, description="leave the reference out of loss and rewards")


@register_loss(
    "dpo",
    params=DPOParams,
    needs=lambda params: set() if params.reference_free else {Need.REFERENCE},
    source="arXiv:2305.18290 Eq. 7; label smoothing: E. Mitchell, cDPO note, 2023",
)
def dpo(scores: Scores, params: DPOParams) -> LossOutput:
    """Make the chosen response more likely than the rejected one, relative to where the reference stands.

        h      = beta * (c_b - r_b)
        loss_b = -(1 - eps) log sigmoid(h) - eps log sigmoid(-h)  =  -log sigmoid(h) + eps * h

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats; without a reference, log policy.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Source: arXiv:2305.18290 Eq. 7; smoothing: cDPO note.
    Differs: with `reference_free` the rewards leave the reference out too; the authors' code changes the loss only.
    Value log 2 and slope beta/2 at policy = reference. Relatives: `robust_dpo` smooths with the other sign.
    """
    values = scores.sums if params.reference_free else scores.logratios
    chosen, rejected = values.unbind(-1)  # [B] each
    h = params.beta * (chosen - rejected)
    # log sigmoid(-h) = log sigmoid(h) - h
    return LossOutput(
        losses=-F.logsigmoid(h) + params.label_smoothing * h,
        rewards=(params.beta * values).detach(),
    )
