"""Identity Preference Optimization on log-ratios per token: a margin with a target instead of a margin without end."""

from __future__ import annotations

from pydantic import Field

from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class IPOParams(LossParams):
    tau: float = Field(0.1, gt=0, description="regularisation: the target gap is 1/(2 tau) nats per token, token/nat")


@register_loss(
    "ipo",
    params=IPOParams,
    needs={Need.REFERENCE, Need.LENGTHS},
    aggregate="mean",
    source="arXiv:2310.12036 Eq. 17, length-normalised as its authors ran it",
)
def ipo(scores: Scores, params: IPOParams) -> LossOutput:
    """Pull the gap between the per-token log-ratios to a fixed target, from both sides.

        loss_b = (c_b / n_c - r_b / n_r - 1 / (2 tau))^2

    with c, r the chosen and rejected log-ratios in nats and n their lengths in tokens.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (tau times the log-ratio of the whole response, nats).
    Source: arXiv:2310.12036 Eq. 17.
    Differs: the paper prints whole-response log-probabilities; its authors ran means, and so does this loss.
    Value 1/(4 tau^2) at policy = reference. Equals `ipo_sum` on one-token responses.
    """
    per_token = scores.logratios / scores.lengths.clamp(min=1)  # [B, 2]
    chosen, rejected = per_token.unbind(-1)
    return LossOutput(
        losses=(chosen - rejected - 1 / (2 * params.tau)) ** 2,
        rewards=(params.tau * scores.logratios).detach(),
    )
