"""Length-normalised DPO: the log-ratio per token, so that length does not scale the reward."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class LNDPOParams(LossParams):
    beta: float = Field(5.0, gt=0, description="scale of the per-token log-ratio: larger saturates sooner, token/nat")


@register_loss(
    "ln_dpo",
    params=LNDPOParams,
    needs={Need.REFERENCE, Need.LENGTHS},
    aggregate="mean",
    source="arXiv:2411.15124 (length-normalised DPO)",
)
def ln_dpo(scores: Scores, params: LNDPOParams) -> LossOutput:
    """DPO on mean log-ratios, each response divided by its own length.

        loss_b = -log sigmoid(beta * (c_b / n_c - r_b / n_r))

    with c, r the chosen and rejected log-ratios log(policy / reference) in nats and n their lengths in tokens.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (beta times the log-ratio of the whole response).
    Metrics: ln_dpo/gap, c / n_c - r / n_r, nats per token.
    Source: arXiv:2411.15124.
    Value log 2 at policy = reference. Equals `dpo` on one-token responses; `ipo` squares where this takes the logistic.
    """
    per_token = scores.logratios / scores.lengths.clamp(min=1)  # [B, 2]
    chosen, rejected = per_token.unbind(-1)
    gap = chosen - rejected
    return LossOutput(
        losses=-F.logsigmoid(params.beta * gap),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"ln_dpo/gap": gap.detach()},
    )
