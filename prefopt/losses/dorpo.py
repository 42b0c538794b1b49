"""Diversified ORPO: unusual good responses count more than typical ones, without a reference model."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.losses._math import log1mexp
from prefopt.losses._registry import register_loss
from prefopt.losses._weights import chosen_deviation
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class DORPOParams(LossParams):
    beta: float = Field(0.25, gt=0, description="weight of the odds-ratio term beside the NLL, dimensionless")
    weight_inside: bool = Field(
        True,
        description="the deviation weighs the NLL and the log odds ratio inside the sigmoid; false: the whole loss",
    )


@register_loss(
    "dorpo",
    params=DORPOParams,
    needs={Need.LENGTHS, Need.DEVIATION},
    aggregate="mean",
    source="arXiv:2503.17126 (released code)",
)
def dorpo(scores: Scores, params: DORPOParams) -> LossOutput:
    """Learn the chosen response and make its odds larger than the rejected one's, more so the more unusual it is.

        log odds(p) = p - log(1 - e^p)
        lor    = log odds(a_b / n_a) - log odds(d_b / n_d)
        loss_b = -omega_b * a_b / n_a - beta * log sigmoid(omega_b * lor)

    and with `weight_inside: false` the loss is omega_b * (-a_b / n_a - beta * log sigmoid(lor)). a, d are the
    log-probabilities of chosen and rejected under the policy, in nats, n their lengths in tokens, and omega is the
    deviation of the chosen response over the mean deviation of the prompt's responses, which comes with the data. The
    odds are taken at p <= -eps of the dtype, as in `orpo`.

    Shapes: scores [B, 2, T], deviation [B, 2] -> losses [B], rewards [B, 2] (beta times the mean log-probability).
    Metrics: dorpo/log_odds_ratio, lor; dorpo/nll, nats per token.
    Source: the authors' code for arXiv:2503.17126.
    Differs: the code's NLL is a mean over the batch's prompt and response tokens, times the batch's mean weight; here
        each response has its own, over its own tokens. The code's floor on rejected scores is left out: it acts on a
        number that nothing reads.
    Equals `orpo` at omega = 1, with lam = beta.
    """
    omega = chosen_deviation(scores)
    means = scores.means  # [B, 2], nats per token
    odds = means.clamp(max=-torch.finfo(means.dtype).eps)
    chosen, rejected = (odds - log1mexp(odds)).unbind(-1)
    ratio, nll = chosen - rejected, -means[:, 0]
    if params.weight_inside:
        losses = omega * nll - params.beta * F.logsigmoid(omega * ratio)
    else:
        losses = omega * (nll - params.beta * F.logsigmoid(ratio))
    return LossOutput(
        losses=losses,
        rewards=(params.beta * means).detach(),
        metrics={"dorpo/log_odds_ratio": ratio.detach(), "dorpo/nll": nll.detach()},
    )
