"""SPPO with hard labels: each log-ratio is pulled to a fixed target, the chosen one up, the rejected one down."""

from __future__ import annotations

from pydantic import Field

from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class SPPOHardParams(LossParams):
    beta: float = Field(0.001, gt=0, description="inverse step size: the targets are +-1/(2 beta) nats, 1/nat")


@register_loss(
    "sppo_hard", params=SPPOHardParams, needs={Need.REFERENCE}, source="arXiv:2405.00675 Eq. 4.7, win probability 1"
)
def sppo_hard(scores: Scores, params: SPPOHardParams) -> LossOutput:
    """Pull the chosen log-ratio to +1/(2 beta) and the rejected one to -1/(2 beta).

        loss_b = (c_b - 1 / (2 beta))^2 + (r_b + 1 / (2 beta))^2

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats. Targets for each response, not for
    their gap, so the chosen one cannot fall along.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Source: arXiv:2405.00675 Eq. 4.7.
    Differs: the paper estimates the probability that a response wins; here it is 1 for the chosen one and 0 for the
        rejected one.
    Value 1/(2 beta^2) at policy = reference. `cal_dpo` adds the logistic term of DPO.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    target = 1 / (2 * params.beta)
    return LossOutput(
        losses=(chosen - target) ** 2 + (rejected + target) ** 2,
        rewards=(params.beta * scores.logratios).detach(),
    )
