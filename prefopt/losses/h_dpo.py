"""H-DPO: DPO with a dial for the entropy of the policy it ends at."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class HDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    alpha: float = Field(
        1.0, gt=0, description="weight of the entropy: below 1 the policy gets sharper, above 1 flatter, dimensionless"
    )


@register_loss(
    "h_dpo", params=HDPOParams, needs={Need.REFERENCE}, source="arXiv:2411.07595, derived from its objective"
)
def h_dpo(scores: Scores, params: HDPOParams) -> LossOutput:
    """Weigh the policy's log-probabilities by alpha and the reference's by 1.

        h      = alpha * beta * (a_c - a_r) - beta * (b_c - b_r)
        loss_b = -log sigmoid(h)

    with a, b the log-probabilities of chosen and rejected under policy and reference, in nats. The optimum is
    proportional to reference^(1/alpha) * exp(reward / (alpha * beta)). alpha acts on summed log-probabilities, so a
    value close to 1 goes a long way on long responses: at policy = reference the loss is not log 2.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (beta times the log-ratio, as for DPO).
    Metrics: h_dpo/reward_chosen and h_dpo/reward_rejected, the method's own rewards alpha * beta * a - beta * b;
        h_dpo/logit, h.
    Source: arXiv:2411.07595.
    Differs: the loss is derived here from the stated objective; no authors' code was found to compare with.
    Equals `dpo` at alpha = 1. Not the alpha-divergence of `f_dpo`.
    """
    # alpha * a - b = (a - b) + (alpha - 1) * a: the log-ratio is summed token by token and keeps its digits
    rewards = params.beta * (scores.logratios + (params.alpha - 1) * scores.sums)  # [B, 2]
    chosen, rejected = rewards.unbind(-1)
    return LossOutput(
        losses=-F.logsigmoid(chosen - rejected),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={
            "h_dpo/reward_chosen": chosen.detach(),
            "h_dpo/reward_rejected": rejected.detach(),
            "h_dpo/logit": (chosen - rejected).detach(),
        },
    )
