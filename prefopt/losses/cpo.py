"""CPO: DPO with a uniform reference, held by supervised fine-tuning on the chosen response."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.context import StepContext
from prefopt.losses._math import NLLNorm, chosen_nll, nll_coupled, nll_window
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class CPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="scale of the log-probability gap: larger saturates sooner, 1/nat")
    cpo_alpha: float = Field(1.0, ge=0, description="weight of the NLL of the chosen response, token/nat")
    nll_norm: NLLNorm = Field(
        "sequence", description="NLL divided by the response's own tokens, or by those of the batch"
    )


@register_loss(
    "cpo", params=CPOParams, needs={Need.LENGTHS}, coupled=nll_coupled, window=nll_window, source="arXiv:2401.08417"
)
def cpo(scores: Scores, params: CPOParams, context: StepContext | None = None) -> LossOutput:
    """Make the chosen response likelier than the rejected one, without a reference, and keep it likely.

        loss_b = -log sigmoid(beta * (a_b - d_b)) - cpo_alpha * a_b / n_a

    with a, d the log-probabilities of chosen and rejected under the policy, in nats, and n_a the chosen response's
    length in tokens.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (beta times the log-probability).
    Metrics: cpo/nll, nats per token.
    Source: arXiv:2401.08417.
    Differs: the authors' code averages the NLL over the tokens of the batch, which is `nll_norm: batch_tokens`; by
        default each response counts once. Their repository now holds a later variant, ARPO, with one more penalty.
    At cpo_alpha = 0 it is `dpo` with `reference_free: true`. `orpo` compares odds of means in place of sums.
    """
    chosen, rejected = scores.sums.unbind(-1)  # [B] each
    nll = chosen_nll(scores, params.nll_norm, context)
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected)) + params.cpo_alpha * nll,
        rewards=(params.beta * scores.sums).detach(),
        metrics={"cpo/nll": nll.detach()},
    )
