"""D2O: learn from what must not be said, with the policy's own samples on the other side."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class D2OParams(LossParams):
    alpha: float = Field(0.1, gt=0, description="scale of the dispreferred response's log-ratio, 1/nat")
    beta: float = Field(0.1, gt=0, description="scale of the own samples' mean log-ratio, 1/nat")


@register_loss(
    "d2o",
    params=D2OParams,
    needs={Need.REFERENCE, Need.EXTERNAL},
    responses="many",
    source="arXiv:2403.03419",
    excused={
        "pulls_the_right_way": "the lowest reward says which response is pushed down, and all others are pulled up"
    },
)
def d2o(scores: Scores, params: D2OParams) -> LossOutput:
    """Push down one dispreferred response against the policy's own samples, without any preferred one.

        loss_b = -log sigmoid(beta / K * sum_k c_bk - alpha * r_b)

    with c_bk the log-ratios log(policy / reference) of the K own samples and r that of the dispreferred response, in
    nats. The dispreferred response is the one with the lowest reward, the last of several; rewards say no more than
    that. The mean over samples stands inside the sigmoid.

    Shapes: scores [B, R, T], external [B, R] -> losses [B], rewards [B, R] (beta times the log-ratio).
    Metrics: d2o/own, mean reward of the own samples; d2o/dispreferred, alpha * r; d2o/margin, their difference.
        `rewards/*` take the first response against the mean of all others, which is not this method's comparison.
    Source: arXiv:2403.03419.
    Differs: the paper compares own samples with one reference and the dispreferred response with another, a harmful
        and a helpful one; in practice both are the starting model, and one reference is read here.
    Equals `dpo` for one own sample and alpha = beta.
    """
    values, present = scores.logratios, scores.present  # [B, R]
    assert scores.external is not None  # a declared need, checked before the call
    rewards = scores.external.masked_fill(~present, torch.inf)
    places = torch.arange(rewards.shape[-1], device=rewards.device)
    last = (places * (rewards == rewards.amin(-1, keepdim=True))).amax(-1, keepdim=True)
    own = present & (places != last)
    mean = values.masked_fill(~own, 0).sum(-1) / own.sum(-1).clamp(min=1)  # [B]
    good, bad = params.beta * mean, params.alpha * values.gather(-1, last).squeeze(-1)
    return LossOutput(
        losses=-F.logsigmoid(good - bad),
        rewards=(params.beta * values).detach(),
        metrics={
            "d2o/own": good.detach(),
            "d2o/dispreferred": bad.detach(),
            "d2o/margin": (good - bad).detach(),
        },
    )
