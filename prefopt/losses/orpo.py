"""ORPO: supervised fine-tuning with a price on the odds of the rejected response; no reference model."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.context import StepContext
from prefopt.losses._math import NLLNorm, chosen_nll, log1mexp, nll_coupled, nll_window
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class ORPOParams(LossParams):
    lam: float = Field(0.1, gt=0, description="weight of the odds-ratio term beside the NLL, dimensionless")
    nll_norm: NLLNorm = Field(
        "sequence", description="NLL divided by the response's own tokens, or by those of the batch"
    )


@register_loss(
    "orpo",
    params=ORPOParams,
    needs={Need.LENGTHS},
    aggregate="mean",
    coupled=nll_coupled,
    window=nll_window,
    source="arXiv:2403.07691",
)
def orpo(scores: Scores, params: ORPOParams, context: StepContext | None = None) -> LossOutput:
    """Learn the chosen response, and make its odds larger than those of the rejected one.

        log odds(p) = p - log(1 - e^p)
        lor    = log odds(a_b / n_a) - log odds(d_b / n_d)
        loss_b = -a_b / n_a - lam * log sigmoid(lor)

    with a, d the log-probabilities of chosen and rejected under the policy, in nats, and n their lengths in tokens. The
    odds are taken at p <= -eps of the dtype (1.2e-7 in float32), where a certain or empty response would have infinite
    odds; beyond, the odds term has zero gradient.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (lam times the mean log-probability).
    Metrics: orpo/log_odds_ratio, lor; orpo/nll, nats per token.
    Source: arXiv:2403.07691.
    Differs: the authors' code takes the NLL over prompt and response; scores hold response tokens only, so the form
        over the prompt cannot be had here, and this is the paper's text. It averages over the tokens of the batch,
        which is `nll_norm: batch_tokens`; by default each response counts once.
    The first term alone is `nll`; `cpo` compares sums of log-probabilities in place of odds.
    """
    means = scores.means  # [B, 2], nats per token
    odds = means.clamp(max=-torch.finfo(means.dtype).eps)
    chosen, rejected = (odds - log1mexp(odds)).unbind(-1)
    ratio = chosen - rejected
    nll = chosen_nll(scores, params.nll_norm, context)
    return LossOutput(
        losses=nll - params.lam * F.logsigmoid(ratio),
        rewards=(params.lam * means).detach(),
        metrics={"orpo/log_odds_ratio": ratio.detach(), "orpo/nll": nll.detach()},
    )
