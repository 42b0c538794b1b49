"""beta-DPO: one beta for each batch, larger where its pairs are easier, and a filter against outliers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.context import StepContext
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

if TYPE_CHECKING:
    from torch import Tensor


class BetaDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="beta of an average batch: larger keeps the policy closer, 1/nat")
    alpha: float = Field(0.6, ge=0, description="how much beta follows the batch's gap; 0 keeps it fixed, 1/nat")
    momentum: float = Field(0.9, ge=0, lt=1, description="memory of the running mean and deviation, dimensionless")
    keep_ratio: float = Field(0.8, gt=0, le=1, description="share of pairs that the filter keeps, dimensionless")
    beta_min: float = Field(1e-3, gt=0, description="beta never falls below this, 1/nat")
    std_floor: float = Field(1e-6, gt=0, description="the running deviation counts as at least this, nats")
    eval_beta: Literal["base", "dynamic"] = Field(
        "base", description="beta in evaluation: fixed, or from the evaluation batch, which then matters"
    )

    def unused(self) -> Mapping[str, str]:
        return {"std_floor": "only the filter reads it, and keep_ratio 1 keeps all"} if self.keep_ratio == 1 else {}


@dataclass(frozen=True)
class GapStatistics:
    """Running mean and standard deviation of the gap, nats. Both start at 0 and are not corrected for it."""

    gap_mean: Tensor = field(default_factory=lambda: torch.zeros(()))
    gap_std: Tensor = field(default_factory=lambda: torch.zeros(()))

    def after(self, gaps: Tensor, momentum: float) -> GapStatistics:
        """The statistics once a batch of gaps `[N]` has been seen."""
        std = gaps.std() if len(gaps) > 1 else torch.zeros_like(gaps[0])  # one pair has no deviation
        return GapStatistics(
            momentum * self.gap_mean.to(gaps) + (1 - momentum) * gaps.mean(),
            momentum * self.gap_std.to(gaps) + (1 - momentum) * std,
        )


@register_loss(
    "beta_dpo",
    params=BetaDPOParams,
    needs={Need.REFERENCE},
    coupled=True,
    window=2,
    state=GapStatistics,
    excused={
        "every_option_acts:std_floor": "acts where all gaps are equal; tests/losses/test_beta_dpo.py says so",
        "every_option_acts:eval_beta": "acts in evaluation; its worked values say so",
    },
    source="arXiv:2407.08639 (dynamic beta and beta-guided filter)",
)
def beta_dpo(scores: Scores, params: BetaDPOParams, context: StepContext | None = None) -> LossOutput:
    """DPO with a beta that follows the batch's gap, on those pairs whose gap is not an outlier.

        gap_i = c_i - r_i, over all ranks, without gradient
        m  <- momentum * m + (1 - momentum) * mean_i gap_i            running mean over all pairs
        s  <- momentum * s + (1 - momentum) * std_i gap_i             unbiased, 0 for one pair
        S   = k pairs drawn without replacement, with probability ~ exp(-((gap_i - m) / max(s, floor))^2 / 2)
        k   = max(1, floor(N * keep_ratio))
        b   = max(beta * (1 + alpha * (mean_{i in S} gap_i - m)), beta_min)
        loss = 1/k * sum_{i in S} -log sigmoid(b * (c_i - r_i))

    with c, r the chosen and rejected log-ratios in nats. Called without `context`, and in evaluation, every pair counts
    with the base beta; `eval_beta: dynamic` takes beta from the frozen m and the evaluation batch instead.

    Shapes: scores [B, 2, T] -> losses [B], whose mean is the method's value (N/k for a kept pair, 0 for another),
        rewards [B, 2] with the base beta.
    Metrics: beta_dpo/beta, 1/nat; beta_dpo/kept, 1 for a kept pair; beta_dpo/gap_mean and beta_dpo/gap_std, nats.
    Source: arXiv:2407.08639 and the authors' code, whose raw gap (without beta) we follow.
    Differs: the authors' code moves the statistics and filters in evaluation too, draws on every rank by itself and
        saves no state. Here evaluation changes nothing, a draw belongs to a pair (Gumbel noise keyed by seed, step and
        id, so weights cannot underflow), and the state is saved with each checkpoint.
    Equals `dpo` at alpha = 0 and keep_ratio = 1.
    """
    chosen, rejected = scores.logratios.unbind(-1)
    gap = chosen - rejected  # [B]
    rewards = (params.beta * scores.logratios).detach()
    if context is None or not (context.training or params.eval_beta == "dynamic"):
        return LossOutput(losses=-F.logsigmoid(params.beta * gap), rewards=rewards)
    gaps = context.gather(gap)  # [N]
    state = context.state or GapStatistics()
    kept = torch.ones_like(gaps, dtype=torch.bool)
    if context.training:
        state = state.after(gaps, params.momentum)
        if params.keep_ratio < 1:
            noise = context.gather(gumbel(context.draw(scores.ids, 1)[:, 0].to(gap)))
            kept = drawn(gaps, state, noise, params)
    beta = params.beta * (1 + params.alpha * (gaps[kept].mean() - state.gap_mean.to(gaps)))
    beta = beta.clamp(min=params.beta_min)
    mine = context.gather.local(kept).to(gap)
    return LossOutput(
        losses=-F.logsigmoid(beta * gap) * mine * (len(gaps) / kept.sum().to(gap)),
        rewards=rewards,
        metrics={
            "beta_dpo/beta": beta.expand_as(gap),
            "beta_dpo/kept": mine,
            "beta_dpo/gap_mean": state.gap_mean.to(gap).expand_as(gap),
            "beta_dpo/gap_std": state.gap_std.to(gap).expand_as(gap),
        },
        state=state,
    )


def drawn(gaps: Tensor, state: GapStatistics, noise: Tensor, params: BetaDPOParams) -> Tensor:
    """Which pairs the filter keeps, bool `[N]`: the k largest of log-weight + Gumbel noise.

    That has the law of k draws without replacement.
    """
    count = max(1, int(len(gaps) * params.keep_ratio + 1e-9))  # 100 * 0.9 is 90.000..1 or 89.999..9
    chosen = (log_weights(gaps, state, params) + noise).topk(count).indices
    return torch.zeros_like(gaps, dtype=torch.bool).index_fill(0, chosen, True)


def log_weights(gaps: Tensor, state: GapStatistics, params: BetaDPOParams) -> Tensor:
    """Log of what the chance of a pair to be kept is proportional to, `[N]`: highest at the running mean."""
    return -0.5 * ((gaps - state.gap_mean) / state.gap_std.clamp(min=params.std_floor)).square()


def gumbel(uniform: Tensor) -> Tensor:
    """Standard Gumbel numbers from uniform ones in (0, 1)."""
    return -(-uniform.log()).log()
