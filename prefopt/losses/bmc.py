"""BMC: bridge the pair by editing, then model which tokens make the difference."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.losses._weights import constant, difference_weights, weighted_logratios
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class BMCParams(LossParams):
    beta: float = Field(0.05, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    delta: float = Field(
        2.0, ge=0, description="most that a differing token may weigh beyond the others; 0 weighs none, dimensionless"
    )
    weight_source: Literal["policy", "own_model"] = Field(
        "policy", description="whose probabilities give the weights: the policy's, or each model's for its own term"
    )


@register_loss("bmc", params=BMCParams, needs={Need.REFERENCE, Need.DIFF}, source="arXiv:2408.07471")
def bmc(scores: Scores, params: BMCParams) -> LossOutput:
    """Put weight on the tokens in which the two responses differ, most on those that the policy does not expect.

        w_bt   = 1 + diff_bt * min(1 / p_bt, delta)
        C_b    = sum_t w_bt * c_bt,    R_b likewise
        loss_b = -log sigmoid(beta * (C_b - R_b))

    with c_bt, r_bt the token log-ratios log(policy / reference) of chosen and rejected, in nats, p the token's
    probability under the policy now, and diff 1 where an alignment of the two responses puts a difference. The weights
    are constants, computed anew at every step.

    Shapes: scores [B, 2, T], diff [B, 2, T] -> losses [B], rewards [B, 2] (beta times the unweighted log-ratio).
    Metrics: bmc/weight, mean weight of the tokens of both responses.
    Source: arXiv:2408.07471.
    Differs: in the released code the reference's term has weights from the reference's probabilities; that is
        `weight_source: own_model`. The paper's one weight for both is the default.
    Equals `dpo` at delta = 0, or where no token differs.
    """
    assert scores.diff is not None  # a declared need, checked before the call
    weights = difference_weights(scores.policy, scores.diff, params.delta)
    if params.weight_source == "policy":
        values = weighted_logratios(scores, weights)
    else:
        assert scores.reference is not None
        theirs = difference_weights(scores.reference, scores.diff, params.delta)
        values = scores.total(constant(scores, weights) * scores.policy - constant(scores, theirs) * scores.reference)
    chosen, rejected = values.unbind(-1)  # [B] each
    tokens = scores.mask.sum((1, 2)).clamp(min=1)
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected)),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"bmc/weight": constant(scores, weights).sum((1, 2)) / tokens},
    )
