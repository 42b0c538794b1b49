"""BCO on pairs: a classifier of chosen and rejected responses whose threshold follows the rewards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.context import StepContext
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

if TYPE_CHECKING:
    from torch import Tensor


class BCOPairParams(LossParams):
    beta: float = Field(0.01, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")


@dataclass(frozen=True)
class RewardShift:
    """Mean reward of all steps so far, dimensionless, and how many they were."""

    delta: Tensor = field(default_factory=lambda: torch.zeros(()))
    count: int = 0

    def after(self, rewards: Tensor) -> RewardShift:
        """Once a batch of rewards `[N]` has been seen; every step weighs the same."""
        delta = self.delta.to(rewards)
        return RewardShift(delta + (rewards.mean() - delta) / (self.count + 1), self.count + 1)


@register_loss(
    "bco_pair",
    params=BCOPairParams,
    needs={Need.REFERENCE},
    coupled=True,
    window=1,
    state=RewardShift,
    source="arXiv:2404.04656 (binary classifier optimization)",
)
def bco_pair(scores: Scores, params: BCOPairParams, context: StepContext | None = None) -> LossOutput:
    """Raise the chosen response's reward above a running mean of rewards, and push the rejected one's below it.

        loss_b = -log sigmoid(beta * c_b - delta) - log sigmoid(delta - beta * r_b)
        delta <- delta + (mean_b (beta * c_b + beta * r_b) / 2 - delta) / step,   before use, over all ranks

    with c, r the chosen and rejected log-ratios in nats; no gradient goes through delta. In evaluation delta is the one
    of training; called without `context` it is 0.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Metrics: bco/delta, dimensionless.
    Source: arXiv:2404.04656 and the authors' code.
    Differs: TRL's `bco_pair` has no delta, which is this loss called without `context`.
    At delta = 0 it is the biased form of `nca_pair`, -log sigmoid(beta * c) - log sigmoid(-beta * r).
    """
    rewards = params.beta * scores.logratios  # [B, 2]
    state = RewardShift() if context is None or context.state is None else context.state
    if context is not None and context.training:
        state = state.after(context.gather(rewards.mean(-1)))
    delta = state.delta.to(rewards)
    chosen, rejected = rewards.unbind(-1)
    return LossOutput(
        losses=-F.logsigmoid(chosen - delta) - F.logsigmoid(delta - rejected),
        rewards=rewards.detach(),
        metrics={"bco/delta": delta.expand_as(chosen)},
        state=None if context is None else state,
    )
