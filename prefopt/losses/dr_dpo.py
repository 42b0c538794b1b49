"""Dr. DPO: DPO that trusts the pairs of a batch less, the worse they fit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.context import StepContext
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

if TYPE_CHECKING:
    from torch import Tensor


class DrDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    beta_prime: float = Field(
        1.0, gt=0, description="trust in the labels: smaller ignores pairs of high loss more, larger is plain DPO, nats"
    )
    label_smoothing: float = Field(
        0.0, ge=0, le=0.5, description="assumed share of flipped labels in the pair loss, dimensionless"
    )
    scope: Literal["global", "local"] = Field(
        "global", description="the pairs of all ranks together, or those of each rank, as the authors' code does"
    )


@register_loss(
    "dr_dpo",
    params=DrDPOParams,
    needs={Need.REFERENCE},
    coupled=True,
    window=2,
    window_per_rank=lambda params: params.scope == "local",
    reweightable=False,
    source="arXiv:2407.07880 (Dr. DPO objective)",
    excused={"every_option_acts:scope": "acts on several ranks; tests/losses/test_dr_dpo.py says so"},
)
def dr_dpo(scores: Scores, params: DrDPOParams, context: StepContext | None = None) -> LossOutput:
    """Weigh the pairs of a batch by how well they fit, so that flipped labels lose their say.

        loss = -beta' * log( mean_b exp(-l_b / beta') )
        l_b  = -log sigmoid(h) + eps * h,    h = beta * (c_b - r_b)

    with c, r the chosen and rejected log-ratios in nats, and the mean over the batch, on all ranks. Its gradient is
    that of `dpo` with weight softmax_b(-l / beta') in place of 1 / N. The value depends on how many pairs stand
    together: `scoring.coupling` says which do. Called without `context`, and in evaluation, it is the pair loss l_b,
    which depends on nothing else.

    Shapes: scores [B, 2, T] -> losses [B], each with the value of the whole, rewards [B, 2].
    Metrics: dr_dpo/pair_loss, l_b; dr_dpo/distrusted, 1 for a pair that weighs less than half of an equal share;
        dr_dpo/effective_share, (sum_b w_b)^2 / (N sum_b w_b^2): 1 when all weigh the same, 1/N when one has it all.
    Source: arXiv:2407.07880.
    Differs: the authors' code takes each rank's micro-batch by itself (`scope: local`); here it is one batch.
    Equals `dpo` for beta' -> infinity, and for a batch of one pair.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    h = params.beta * (chosen - rejected)
    pair = -F.logsigmoid(h) + params.label_smoothing * h
    rewards = (params.beta * scores.logratios).detach()
    if context is None or not context.training:
        return LossOutput(losses=pair, rewards=rewards, metrics={"dr_dpo/pair_loss": pair.detach()})
    gather = context.gather if params.scope == "global" else context.gather.own()
    weights = torch.softmax(-gather(pair) / params.beta_prime, 0)  # [N], what the gradient puts on each pair
    share = 1 / (len(weights) * weights.square().sum().clamp(min=1e-12))
    mine = gather.local(weights)
    return LossOutput(
        losses=gather.reduce(pair, lambda losses: soft_min(losses, params.beta_prime)),
        rewards=rewards,
        metrics={
            "dr_dpo/pair_loss": pair.detach(),
            "dr_dpo/distrusted": (len(weights) * mine < 0.5).to(pair),
            "dr_dpo/effective_share": share.to(pair).expand_as(pair),
        },
    )


def soft_min(losses: Tensor, temperature: float) -> Tensor:
    """`-t * log mean exp(-losses / t)`, `[N] -> []`: the mean for t -> infinity, the minimum for t -> 0.

    Measured from the smallest loss, so that neither a small t overflows nor a large one loses digits.
    """
    least = losses.detach().min()
    return least - temperature * torch.log1p(torch.expm1((least - losses) / temperature).mean())
