"""Dr. DPO: DPO that trusts the pairs of a batch less, the worse they fit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.context import Gather, StepContext
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
    reweightable=False,
    source="arXiv:2407.07880 (Dr. DPO objective)",
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
    Metrics: dr_dpo/pair_loss, l_b; dr_dpo/weight, N times the pair's weight: below 1 for pairs that are distrusted.
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
    gather = context.gather if params.scope == "global" else Gather()
    everyone = gather(pair)  # [N]
    weight = torch.exp(-pair.detach() / params.beta_prime - torch.logsumexp(-everyone / params.beta_prime, 0))
    return LossOutput(
        losses=gather.reduce(pair, lambda losses: soft_min(losses, params.beta_prime)),
        rewards=rewards,
        metrics={"dr_dpo/pair_loss": pair.detach(), "dr_dpo/weight": len(everyone) * weight},
    )


def soft_min(losses: Tensor, temperature: float) -> Tensor:
    """`-t * log mean exp(-losses / t)`, `[N] -> []`: the mean for t -> infinity, the minimum for t -> 0.

    Measured from the smallest loss, so that neither a small t overflows nor a large one loses digits.
    """
    least = losses.detach().min()
    return least - temperature * torch.log1p(torch.expm1((least - losses) / temperature).mean())
