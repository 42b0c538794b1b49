"""Hinge loss on the reference-normalised margin: pairs that are far enough apart are left alone."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import torch
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class HingeParams(LossParams):
    beta: float = Field(
        0.05, gt=0, description="inverse of the margin that is asked for: pushing ends at 1/beta, 1/nat"
    )


@register_loss("hinge", params=HingeParams, needs={Need.REFERENCE}, source="arXiv:2309.06657 (RSO, hinge-norm)")
def hinge(scores: Scores, params: HingeParams) -> LossOutput:
    """Push the pair apart with constant force until its margin is 1/beta nats, then stop.

        loss_b = max(0, 1 - beta * (c_b - r_b))

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats. The gradient is zero from the margin
    on, at the kink too.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Metrics: hinge/active, 1 for a pair that still gets a gradient, else 0.
    Source: arXiv:2309.06657, the method is called hinge-norm there.
    Value 1 and slope beta at policy = reference, twice the slope of `dpo`. `slic` has no reference and adds an NLL.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    losses = torch.relu(1 - params.beta * (chosen - rejected))
    return LossOutput(
        losses=losses,
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"hinge/active": (losses > 0).to(losses.dtype)},
    )
