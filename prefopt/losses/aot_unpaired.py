"""AOT, unpaired: chosen responses as a whole should be rewarded more than rejected ones, rank by rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.context import Gather, StepContext
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

if TYPE_CHECKING:
    from torch import Tensor


class AOTUnpairedParams(LossParams):
    beta: float = Field(0.01, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    label_smoothing: float = Field(0.0, ge=0, le=0.5, description="assumed share of flipped labels, dimensionless")


@register_loss(
    "aot_unpaired",
    params=AOTUnpairedParams,
    needs={Need.REFERENCE},
    coupled=True,
    window=2,
    reweightable=False,
    source="arXiv:2406.05882 (AOT, unpaired)",
)
def aot_unpaired(scores: Scores, params: AOTUnpairedParams, context: StepContext | None = None) -> LossOutput:
    """Compare the sorted log-ratios of chosen responses with the sorted log-ratios of rejected ones.

        u = sort_b(c_b),    v = sort_b(r_b)       over the batch, on all ranks
        loss_k = -log sigmoid(h_k) + eps * h_k,    h_k = beta * (u_k - v_k)

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats. Both sides carry gradient. Called
    without `context`, and in evaluation, a pair's responses are compared with each other.

    Shapes: scores [B, 2, T] -> losses [B], half of each entry from the chosen response's rank and half from the
        rejected one's, so that their mean is the method's value; rewards [B, 2].
    Source: arXiv:2406.05882.
    Differs: losses come in pair order, so that rows can be followed; other libraries give them sorted. Some older
        libraries call this form `aot_pair`.
    Equals `dpo` (with its label smoothing) for a batch of one, and where sorting keeps the pairs together.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each

    def pair(u: Tensor, v: Tensor) -> Tensor:
        h = params.beta * (u - v)
        return -F.logsigmoid(h) + params.label_smoothing * h

    rewards = (params.beta * scores.logratios).detach()
    if context is None or not context.training:
        return LossOutput(losses=pair(chosen, rejected), rewards=rewards)
    of_chosen = pair(chosen, partners(chosen, rejected, context.gather))
    of_rejected = pair(partners(rejected, chosen, context.gather), rejected)
    both = of_chosen + of_rejected  # the gradient of every rank in full, the value of every rank twice
    return LossOutput(losses=both - 0.5 * both.detach(), rewards=rewards)


def partners(mine: Tensor, other: Tensor, gather: Gather) -> Tensor:
    """For each of `mine`, the value of `other` that has the same rank among all N, `[b] -> [b]`, without gradient."""
    order = gather(mine).argsort(stable=True)  # [N]
    ranked = gather(other).sort().values
    return gather.local(torch.empty_like(ranked).scatter(0, order, ranked))
