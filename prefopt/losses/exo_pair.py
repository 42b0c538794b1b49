"""EXO on pairs: the exact, mode-seeking KL between policy and preference, in place of the DPO cross-entropy."""

from __future__ import annotations

import math

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class EXOPairParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    epsilon: float = Field(
        1e-3, gt=0, lt=0.5, description="probability that the rejected response is better; 0 is infinite, dimensionless"
    )


@register_loss("exo_pair", params=EXOPairParams, needs={Need.REFERENCE}, source="arXiv:2402.00856 Eq. 16")
def exo_pair(scores: Scores, params: EXOPairParams) -> LossOutput:
    """Bring the policy's preference within the pair to the label's, by the KL that seeks the mode.

        q      = sigmoid(beta * (c_b - r_b))
        loss_b = KL((q, 1 - q) || (1 - eps, eps))
               = q * (log q - log(1 - eps)) + (1 - q) * (log(1 - q) - log eps)

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats. Between 0 and -log eps; the gradient
    vanishes for a pair that is ordered wrongly with certainty, and the margin has a finite target,
    log((1 - eps) / eps) / beta.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Source: arXiv:2402.00856 Eq. 16.
    Differs: the authors' code takes the labels 0 and -10 as unnormalised logarithms, that is 4.5e-5 for eps without
        log(1 - eps), and a beta of its own for the rewards. An epsilon of 0 is refused, not replaced.
    The other direction of the KL, up to a constant, is `dpo` with `label_smoothing: epsilon`.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    h = params.beta * (chosen - rejected)
    # 1 - sigmoid(h) = sigmoid(-h), which keeps its digits for large h
    won = torch.sigmoid(h) * (F.logsigmoid(h) - math.log1p(-params.epsilon))
    lost = torch.sigmoid(-h) * (F.logsigmoid(-h) - math.log(params.epsilon))
    return LossOutput(losses=won + lost, rewards=(params.beta * scores.logratios).detach())
