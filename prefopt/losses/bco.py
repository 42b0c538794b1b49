"""BCO on single responses: a classifier of desirable and undesirable ones whose threshold follows the rewards."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.context import StepContext
from prefopt.losses._registry import register_loss
from prefopt.losses.bco_pair import RewardShift
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class BCOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")


@register_loss(
    "bco",
    params=BCOParams,
    needs={Need.REFERENCE, Need.LABELS},
    responses="single",
    coupled=True,
    window=1,
    state=RewardShift,
    source="arXiv:2404.04656 (binary classifier optimization)",
    excused={"pulls_the_right_way": "undesirable responses are pushed down; tests/losses/test_bco.py says so"},
)
def bco(scores: Scores, params: BCOParams, context: StepContext | None = None) -> LossOutput:
    """Raise desirable responses above a running mean of rewards, and push undesirable ones below it.

        loss_b = -log sigmoid(beta * r_b - delta)     desirable
        loss_b = -log sigmoid(delta - beta * r_b)     undesirable
        delta <- delta + (mean_b beta * r_b - delta) / step,   before use, over all ranks

    with r the log-ratio log(policy / reference) in nats; no gradient goes through delta. In evaluation delta is the one
    of training; called without `context` it is 0.

    Shapes: scores [B, 1, T], labels [B] (true: desirable) -> losses [B], rewards [B, 1].
    Metrics: bco/delta and bco/signed_reward, the reward with the sign of its label, which training should raise.
    Source: arXiv:2404.04656.
    Differs: the density-ratio weights for undesirable prompts are left out, as TRL leaves them out by default.
    A desirable and an undesirable response of one prompt together are its `bco_pair`, given the same delta.
    """
    assert scores.labels is not None  # a declared need, checked before the call
    reward = params.beta * scores.logratios[:, 0]  # [B]
    state = RewardShift() if context is None or context.state is None else context.state
    if context is not None and context.training:
        state = state.after(context.gather(reward))
    delta = state.delta.to(reward)
    sign = torch.where(scores.labels, 1.0, -1.0).to(reward)
    return LossOutput(
        losses=-F.logsigmoid(sign * (reward - delta)),
        rewards=reward.detach().unsqueeze(-1),
        metrics={"bco/delta": delta.expand_as(reward), "bco/signed_reward": (sign * reward).detach()},
        state=None if context is None else state,
    )
