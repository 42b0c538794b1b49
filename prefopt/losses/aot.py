"""AOT, paired: the policy's margins as a whole should exceed the reference's, rank by rank."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.context import StepContext
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class AOTParams(LossParams):
    beta: float = Field(0.01, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    label_smoothing: float = Field(0.0, ge=0, le=0.5, description="assumed share of flipped labels, dimensionless")


@register_loss(
    "aot",
    params=AOTParams,
    needs={Need.REFERENCE},
    coupled=True,
    window=2,
    reweightable=False,
    source="arXiv:2406.05882 (AOT, paired)",
)
def aot(scores: Scores, params: AOTParams, context: StepContext | None = None) -> LossOutput:
    """Compare the sorted margins of the policy with the sorted margins of the reference.

        u = sort_b(a_b - d_b),    v = sort_b(ref a_b - ref d_b)       over the batch, on all ranks
        loss_k = -log sigmoid(h_k) + eps * h_k,    h_k = beta * (u_k - v_k)

    with a, d the log-probabilities of chosen and rejected, in nats. A pair is compared with the reference margin of its
    rank, not with its own. Called without `context`, and in evaluation, a pair is compared with its own.

    Shapes: scores [B, 2, T] -> losses [B], in the order of the pairs, rewards [B, 2].
    Source: arXiv:2406.05882.
    Differs: losses come in pair order, so that rows can be followed; other libraries give them sorted.
    Equals `dpo` (with its label smoothing) for a batch of one, and where sorting keeps the pairs together.
    """
    margin = scores.sums[:, 0] - scores.sums[:, 1]  # [B]
    partner = scores.reference_sums[:, 0] - scores.reference_sums[:, 1]
    if context is not None and context.training:
        order = context.gather(margin).argsort(stable=True)  # [N]
        ranked = context.gather(partner).sort().values
        partner = context.gather.local(torch.empty_like(ranked).scatter(0, order, ranked))
    h = params.beta * (margin - partner)
    return LossOutput(
        losses=-F.logsigmoid(h) + params.label_smoothing * h,
        rewards=(params.beta * scores.logratios).detach(),
    )
