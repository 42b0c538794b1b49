"""TDPO2: DPO that charges the rejected response for its token-level KL, with the chosen one's as a fixed mark."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._math import position_kl
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class TDPO2Params(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    alpha: float = Field(0.5, ge=0, description="weight of the gap between the KLs in the margin, dimensionless")


@register_loss(
    "tdpo2",
    params=TDPO2Params,
    needs={Need.REFERENCE, Need.KL},
    source="arXiv:2404.11999 (TDPO2) and its authors' code",
)
def tdpo2(scores: Scores, params: TDPO2Params) -> LossOutput:
    """Lower the divergence along the rejected response towards that along the chosen one.

        loss_b = -log sigmoid(beta * ((c_b - r_b) - alpha * (K_r - sg[K_c])))
        K      = sum_t sum_v reference(v | t) * log(reference(v | t) / policy(v | t))

    with c, r the chosen and rejected log-ratios log(policy / reference) and K the KL summed over the positions of the
    response, in nats, over the whole vocabulary. sg holds the chosen response's K constant: it gets no gradient.

    Shapes: scores [B, 2, T], kl [B, 2, T] -> losses [B], rewards [B, 2] (beta times the log-ratio, without K).
    Metrics: tdpo2/kl_chosen and tdpo2/kl_rejected, K, nats; tdpo2/reward_chosen and tdpo2/reward_rejected, the
        method's own rewards beta * (c + K) and beta * (r + K).
    Source: arXiv:2404.11999.
    Value log 2 at policy = reference. Equals `dpo` at alpha = 0; at alpha = 1 its value is that of `tdpo1`, while the
    gradient differs.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    chosen_kl, rejected_kl = position_kl(scores).unbind(-1)
    margin = (chosen - rejected) - params.alpha * (rejected_kl - chosen_kl.detach())
    return LossOutput(
        losses=-F.logsigmoid(params.beta * margin),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={
            "tdpo2/kl_chosen": chosen_kl.detach(),
            "tdpo2/kl_rejected": rejected_kl.detach(),
            "tdpo2/reward_chosen": (params.beta * (chosen + chosen_kl)).detach(),
            "tdpo2/reward_rejected": (params.beta * (rejected + rejected_kl)).detach(),
        },
    )
