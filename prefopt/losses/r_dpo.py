"""R-DPO: DPO with a price on length, so that longer responses gain nothing by being longer."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class RDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    alpha: float = Field(0.01, ge=0, description="price of a token of length, in units of the reward, 1/token")


@register_loss(
    "r_dpo",
    params=RDPOParams,
    needs={Need.REFERENCE, Need.LENGTHS},
    source="arXiv:2403.19159 Eq. 9 (length regularised)",
)
def r_dpo(scores: Scores, params: RDPOParams) -> LossOutput:
    """Push less where the chosen response is the longer one, and more where it is the shorter one.

        loss_b = -log sigmoid(beta * (c_b - r_b) + alpha * (n_c - n_r))

    with c, r the chosen and rejected log-ratios log(policy / reference) in nats and n their lengths in tokens. Follows
    from rewards less alpha per token: a longer chosen response is explained by its length already.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (beta times the log-ratio, without the price of length).
    Metrics: r_dpo/length_gap, n_c - n_r, tokens.
    Source: arXiv:2403.19159 Eq. 9.
    Differs: several ports subtract the length term, which rewards length; the plus sign is derived from the objective.
    Equals `dpo` at alpha = 0, and for responses of equal length.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    longer, shorter = scores.lengths.unbind(-1)
    gap = longer - shorter
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected) + params.alpha * gap),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"r_dpo/length_gap": gap},
    )
