"""IRPO: DPO with the negative log-likelihood of the chosen response beside it, for chains of reasoning."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.context import StepContext
from prefopt.losses._math import NLLNorm, chosen_nll, nll_coupled, nll_window
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class IRPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    alpha: float = Field(1.0, ge=0, description="weight of the NLL of the chosen response, token/nat")
    nll_norm: NLLNorm = Field(
        "sequence", description="NLL divided by the response's own tokens, or by those of the batch"
    )


@register_loss(
    "irpo",
    params=IRPOParams,
    needs={Need.REFERENCE, Need.LENGTHS},
    coupled=nll_coupled,
    window=nll_window,
    source="arXiv:2404.19733v3 Eq. 1",
)
def irpo(scores: Scores, params: IRPOParams, context: StepContext | None = None) -> LossOutput:
    """DPO that also makes the chosen response likelier in itself, where DPO rewards the gap only.

        loss_b = -log sigmoid(beta * (c_b - r_b)) - alpha * a_b / n_a

    with c, r the chosen and rejected log-ratios log(policy / reference), a the log-probability of the chosen response
    under the policy, in nats, and n_a its length in tokens.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Metrics: irpo/nll, nats per token.
    Source: arXiv:2404.19733v3 Eq. 1.
    Differs: other trainers average the NLL over the tokens of the batch; `nll_norm: batch_tokens` does so.
    Equals `dpo` at alpha = 0, and `dpo` plus alpha times `nll` otherwise.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    nll = chosen_nll(scores, params.nll_norm, context)
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected)) + params.alpha * nll,
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"irpo/nll": nll.detach()},
    )
