"""DPO-Shift: push the rejected response less, so that the chosen one keeps more of its likelihood."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from prefopt._torch import F, torch
from prefopt.context import StepContext
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

Schedule = Literal["fixed", "linear_increase", "linear_decrease", "cosine_increase", "cosine_decrease"]


class DPOShiftParams(LossParams):
    beta: float = Field(0.01, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    schedule: Schedule = Field("fixed", description="whether and how the weight of the rejected response changes")
    lam: float = Field(
        0.95, gt=0, le=1, description="fixed weight of the rejected response: below 1 spares it, dimensionless"
    )
    lambda_min: float = Field(0.95, gt=0, le=1, description="smallest weight of a schedule, dimensionless")
    lambda_max: float = Field(1.0, gt=0, le=1, description="largest weight of a schedule, dimensionless")

    def unused(self) -> Mapping[str, str]:
        if self.schedule == "fixed":
            return dict.fromkeys(("lambda_min", "lambda_max"), "`schedule: fixed` reads lam")
        return {"lam": "a schedule runs between lambda_min and lambda_max"}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.lambda_min > self.lambda_max:
            raise ValueError(
                f"lambda_min must be at most lambda_max; got {self.lambda_min:g} and {self.lambda_max:g}. "
                "The name of the schedule says which way the weight goes."
            )
        return self

    def weight(self, progress: float) -> float:
        """f at this share of all steps, 0 to 1."""
        if self.schedule == "fixed":
            return self.lam
        shape, _, direction = self.schedule.partition("_")
        part = progress if shape == "linear" else (1 - math.cos(math.pi * progress)) / 2
        span = self.lambda_max - self.lambda_min
        return self.lambda_min + span * part if direction == "increase" else self.lambda_max - span * part


@register_loss(
    "dpo_shift",
    params=DPOShiftParams,
    needs={Need.REFERENCE},
    coupled=lambda params: params.schedule != "fixed",
    source="arXiv:2502.07599v2 (DPO-Shift)",
)
def dpo_shift(scores: Scores, params: DPOShiftParams, context: StepContext | None = None) -> LossOutput:
    """Scale the rejected response's reward by f <= 1: a smaller margin for a likelier chosen response.

        loss_b = -log sigmoid(beta * c_b - f * beta * r_b)

        fixed            f = lam
        linear_increase  f = lambda_min + (lambda_max - lambda_min) * t / T
        linear_decrease  f = lambda_max - (lambda_max - lambda_min) * t / T
        cosine_*         t / T replaced by (1 - cos(pi * t / T)) / 2

    with c, r the chosen and rejected log-ratios log(policy / reference) in nats, t the optimizer steps done and T all
    of them; t / T is kept within [0, 1]. Called without `context`, a schedule stands at its start. In evaluation f is
    the current one, so losses of a scheduled run do not compare across steps: compare dpo_shift/dpo_loss.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (beta times the log-ratio, not scaled by f).
    Metrics: dpo_shift/f, and dpo_shift/dpo_loss, the loss at f = 1.
    Raises: `ConfigError` for a weight outside (0, 1]: above 1 training collapses.
    Source: arXiv:2502.07599v2.
    Differs: the cosine schedules are ours. The authors' code reads its step from a private field of the scheduler;
        here it is the trainer's. Their names are `increase_linear` and `decrease_linear`.
    Equals `dpo` at f = 1. Identical responses are not at log 2 unless they stand at the reference.
    """
    chosen, rejected = (params.beta * scores.logratios).unbind(-1)  # [B] each
    progress = 0.0 if context is None else min(max(context.step / max(context.total_steps, 1), 0.0), 1.0)
    f = params.weight(progress)
    return LossOutput(
        losses=-F.logsigmoid(chosen - f * rejected),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={
            "dpo_shift/f": torch.full_like(chosen, f).detach(),
            "dpo_shift/dpo_loss": -F.logsigmoid(chosen - rejected).detach(),
        },
    )
