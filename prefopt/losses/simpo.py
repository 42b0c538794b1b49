"""SimPO: preference optimization without a reference model, on the average log-probability per token."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class SimPOParams(LossParams):
    beta: float = Field(2.0, gt=0, description="scale of the per-token reward; larger saturates sooner, token/nat")
    gamma_beta_ratio: float = Field(
        0.5, ge=0, description="target gap of the per-token log-probabilities, gamma / beta of the paper, nat/token"
    )


@register_loss(
    "simpo", params=SimPOParams, needs={Need.LENGTHS}, aggregate="mean", source="arXiv:2405.14734 (SimPO objective)"
)
def simpo(scores: Scores, params: SimPOParams) -> LossOutput:
    """Make the chosen response likelier per token than the rejected one, by a margin.

        loss_b = -log sigmoid(beta * (a_b / n_a - d_b / n_d - g)),    g = gamma / beta

    with a, d the log-probabilities of chosen and rejected under the policy, in nats, and n their lengths in tokens.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (beta times the mean log-probability).
    Source: arXiv:2405.14734.
    Differs: the margin is given as the ratio gamma / beta, as in the authors' configuration files, not as gamma.
    Relatives: with responses of one token and `gamma_beta_ratio: 0` it is `dpo` with `reference_free: true`.
    """
    chosen, rejected = scores.means.unbind(-1)  # [B] each, nats per token
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected - params.gamma_beta_ratio)),
        rewards=(params.beta * scores.means).detach(),
    )
