"""DPO with an anchor: the chosen response must also rise above the reference, not only above the rejected one."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class DPOWithAnchorParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    anchor_weight: float = Field(1.0, ge=0, description="weight of the anchor beside the comparison, dimensionless")
    anchor: float = Field(
        0.0,
        description="reward of the chosen response around which the anchor lets go; larger pulls longer, dimensionless",
    )

    def unused(self) -> Mapping[str, str]:
        return {"anchor": "anchor_weight is 0"} if self.anchor_weight == 0 else {}


@register_loss(
    "dpo_with_anchor", params=DPOWithAnchorParams, needs={Need.REFERENCE}, source="after arXiv:2501.09695, text only"
)
def dpo_with_anchor(scores: Scores, params: DPOWithAnchorParams) -> LossOutput:
    """Prefer the chosen response, and pull it above the reference while it is at it.

        loss_b = -log sigmoid(beta * (c_b - r_b)) - anchor_weight * log sigmoid(beta * c_b - anchor)

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Metrics: dpo_with_anchor/anchor, the second term, unweighted.
    Source: arXiv:2501.09695 for the anchor.
    Differs: the released code of OPA-DPO takes the sigmoid per token, compares images as well, and its anchor pushes
        down one of the two preferred answers; here sums of whole responses are compared and the chosen one is anchored.
    Equals `dpo` at anchor_weight = 0; `dpop` punishes a fallen chosen response inside the sigmoid.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    anchor = -F.logsigmoid(params.beta * chosen - params.anchor)
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected)) + params.anchor_weight * anchor,
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"dpo_with_anchor/anchor": anchor.detach()},
    )
