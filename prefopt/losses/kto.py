"""KTO: responses judged one by one, against how far the policy has moved in general."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import Field

from prefopt._torch import torch
from prefopt.context import StepContext
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

if TYPE_CHECKING:
    from torch import Tensor


class KTOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger saturates sooner, 1/nat")
    desirable_weight: float = Field(1.0, gt=0, description="weight of desirable responses, dimensionless")
    undesirable_weight: float = Field(1.0, gt=0, description="weight of undesirable responses, dimensionless")


@dataclass(frozen=True)
class ReferencePoint:
    """The last estimate of how far the policy has moved from the reference, nats."""

    kl: Tensor = field(default_factory=lambda: torch.zeros(()))


@register_loss(
    "kto",
    params=KTOParams,
    needs={Need.REFERENCE, Need.LABELS, Need.MISMATCHED},
    responses="single",
    coupled=True,
    window=2,
    state=ReferencePoint,
    source="arXiv:2402.01306 (KTO objective)",
    excused={"pulls_the_right_way": "undesirable responses are pushed down; tests/losses/test_kto.py says so"},
)
def kto(scores: Scores, params: KTOParams, context: StepContext | None = None) -> LossOutput:
    """Reward desirable responses for standing above the policy's general drift, and undesirable ones for below.

        loss_b = lambda_D * sigmoid(-beta * (r_b - z))     desirable
        loss_b = lambda_U * sigmoid(-beta * (z - r_b))     undesirable
        z      = max(0, mean_b log(policy / reference)(another prompt's response behind prompt b))

    with r the log-ratio log(policy / reference) in nats. z is one constant for the batch on all ranks, without
    gradient, clamped after the mean. In evaluation it is the last one of training, so that no row's number depends on
    its neighbours; called without `context` it is 0, where it stands before the first step.

    Shapes: scores [B, 1, T], labels [B] (true: desirable), mismatched [B] -> losses [B], rewards [B, 1].
    Metrics: kto/kl, z in nats; kto/signed_reward, the reward with the sign of its label, which training should raise.
    Source: arXiv:2402.01306 and the authors' code.
    Differs: the mean is over the pairs of all ranks, not over the ranks' means, and a prompt's other response is that
        of a fixed row of the data set, so that no number depends on how rows were shuffled into batches. Keep
        desirable_weight times desirable rows over undesirable_weight times undesirable rows within 1 to 4/3.
    Value 1/2 per row at policy = reference. At z = 0 a pair's two rows are `apo_zero`.
    """
    assert scores.labels is not None
    assert scores.mismatched is not None
    logratio = scores.logratios[:, 0]  # [B]
    state = ReferencePoint() if context is None or context.state is None else context.state
    if context is not None and context.training:
        state = ReferencePoint(reference_point(context.gather(scores.mismatched)))
    z = state.kl.to(logratio)
    desirable = scores.labels.to(logratio)
    sign = 2 * desirable - 1
    weight = params.desirable_weight * desirable + params.undesirable_weight * (1 - desirable)
    return LossOutput(
        losses=weight * torch.sigmoid(-params.beta * sign * (logratio - z)),  # 1 - sigmoid(u) would lose its digits
        rewards=(params.beta * logratio).detach().unsqueeze(-1),
        metrics={
            "kto/kl": z.expand_as(logratio),
            "kto/signed_reward": (params.beta * sign * logratio).detach(),
        },
        state=None if context is None else state,
    )


def reference_point(mismatched: Tensor) -> Tensor:
    """z of the mismatched log-ratios of all ranks, `[N] -> []`, nats; rows without a partner (NaN) do not count."""
    known = mismatched[~mismatched.isnan()]
    return known.mean().clamp(min=0) if len(known) else mismatched.new_zeros(())
