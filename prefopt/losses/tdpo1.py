"""TDPO1: DPO with the token-level KL of both responses in the margin."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._math import position_kl
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class TDPO1Params(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")


@register_loss(
    "tdpo1",
    params=TDPO1Params,
    needs={Need.REFERENCE, Need.KL},
    source="arXiv:2404.11999 (TDPO1) and its authors' code",
)
def tdpo1(scores: Scores, params: TDPO1Params) -> LossOutput:
    """Add to each response's log-ratio the divergence that the policy has gathered along it.

        loss_b = -log sigmoid(beta * ((c_b + K_c) - (r_b + K_r)))
        K      = sum_t sum_v reference(v | t) * log(reference(v | t) / policy(v | t))

    with c, r the chosen and rejected log-ratios log(policy / reference) and K the KL summed over the positions of the
    response, in nats, over the whole vocabulary. The gradient reaches both K.

    Shapes: scores [B, 2, T], kl [B, 2, T] -> losses [B], rewards [B, 2] (beta times the log-ratio, without K).
    Metrics: tdpo1/kl_chosen and tdpo1/kl_rejected, K, nats; tdpo1/reward_chosen and tdpo1/reward_rejected, the
        method's own rewards beta * (c + K) and beta * (r + K).
    Source: arXiv:2404.11999.
    Value log 2 at policy = reference. Equals `dpo` where both K agree; `tdpo2` weighs K and holds the chosen one fixed.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    chosen_kl, rejected_kl = position_kl(scores).unbind(-1)
    chosen_reward = params.beta * (chosen + chosen_kl)
    rejected_reward = params.beta * (rejected + rejected_kl)
    return LossOutput(
        losses=-F.logsigmoid(chosen_reward - rejected_reward),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={
            "tdpo1/kl_chosen": chosen_kl.detach(),
            "tdpo1/kl_rejected": rejected_kl.detach(),
            "tdpo1/reward_chosen": chosen_reward.detach(),
            "tdpo1/reward_rejected": rejected_reward.detach(),
        },
    )
