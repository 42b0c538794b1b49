"""DPO with a weight per token: the primitive under the step- and token-level losses."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.losses._weights import weighted_logratios
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class TokenWeightedDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")


@register_loss(
    "token_weighted_dpo",
    params=TokenWeightedDPOParams,
    needs={Need.REFERENCE, Need.WEIGHTS},
    source="arXiv:2305.18290 Eq. 7, with a weight per token",
)
def token_weighted_dpo(scores: Scores, params: TokenWeightedDPOParams) -> LossOutput:
    """Compare chosen and rejected where it matters: each token counts by a weight that comes with the data.

        C_b    = sum_t w_bt * c_bt,    R_b likewise
        loss_b = -log sigmoid(beta * (C_b - R_b))

    with c_bt, r_bt the log-ratios log(policy / reference) of single tokens of chosen and rejected, in nats, and w >= 0
    constant weights.

    Shapes: scores [B, 2, T], weights [B, 2, T] -> losses [B], rewards [B, 2] (beta times the unweighted log-ratio).
    Metrics: token_weighted_dpo/margin, C - R, nats.
    Source: arXiv:2305.18290 Eq. 7 for the comparison; severity weights as in arXiv:2501.09695.
    Differs: where released code takes the sigmoid position by position, here weighted sums of whole responses are
        compared, which is the published objective of the methods that build on it.
    Equals `dpo` when every weight is 1.
    """
    assert scores.weights is not None  # a declared need, checked before the call
    chosen, rejected = weighted_logratios(scores, scores.weights).unbind(-1)  # [B] each
    margin = chosen - rejected
    return LossOutput(
        losses=-F.logsigmoid(params.beta * margin),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"token_weighted_dpo/margin": margin.detach()},
    )
