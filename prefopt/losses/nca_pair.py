"""NCA on pairs: absolute terms beside the comparison, so that the chosen response keeps its likelihood."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class NCAPairParams(LossParams):
    beta: float = Field(0.01, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")


@register_loss("nca_pair", params=NCAPairParams, needs={Need.REFERENCE}, source="arXiv:2402.05369 (NCA, K = 2)")
def nca_pair(scores: Scores, params: NCAPairParams) -> LossOutput:
    """Tell each response from the reference's own: the chosen one by a reward above 0, the rejected one below.

        loss_b = -log sigmoid(beta * c_b) - 0.5 log sigmoid(-beta * c_b) - 0.5 log sigmoid(-beta * r_b)

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats. The chosen reward has a finite
    target, log 2.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Source: arXiv:2402.05369, with two responses and labels 1 and 0.
    Value 2 log 2 at policy = reference. Each term is `dpo` against an opponent that stands at the reference; InfoNCA on
    pairs is `dpo` itself.
    """
    chosen, rejected = (params.beta * scores.logratios).unbind(-1)  # [B] each
    return LossOutput(
        losses=-F.logsigmoid(chosen) - 0.5 * F.logsigmoid(-chosen) - 0.5 * F.logsigmoid(-rejected),
        rewards=(params.beta * scores.logratios).detach(),
    )
