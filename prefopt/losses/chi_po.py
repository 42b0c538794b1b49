"""chi-PO: DPO under the chi-squared divergence, which is stricter about responses the reference rarely gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

if TYPE_CHECKING:
    from torch import Tensor


class ChiPOParams(LossParams):
    beta: float = Field(0.05, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    r_max: float | None = Field(
        None, gt=0, description="bound on rewards: margins are clipped at twice that; null for no clip, dimensionless"
    )
    exp_clamp_max: float = Field(20.0, gt=0, le=80, description="largest exponent that is taken, nat")


@register_loss(
    "chi_po",
    params=ChiPOParams,
    needs={Need.REFERENCE},
    source="arXiv:2407.13399 (link and clip of chi-PO)",
    excused={"every_option_acts:exp_clamp_max": "it acts beyond that many nats only, which its own tests reach"},
)
def chi_po(scores: Scores, params: ChiPOParams) -> LossOutput:
    """DPO with the likelihood ratio itself added to its logarithm.

        phi(d) = e^d + d
        loss_b = -log sigmoid(clip(beta * (phi(c_b) - phi(r_b)), -2 r_max, 2 r_max))

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats. The exponent is clamped at
    exp_clamp_max before e is raised to it; the linear term is not. A clipped pair gets no gradient, also when it is
    ordered wrongly.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (beta times the log-ratio).
    Metrics: chi_po/logit, the clipped margin; chi_po/clipped, 1 for a pair beyond the clip, else 0.
    Source: arXiv:2407.13399.
    Differs: no authors' code was found; link and clip follow secondary descriptions, and the bounds of the paper's own
        clamp are not known. Hence the clip is off by default, and the clamp is an option.
    Value log 2 at policy = reference, where the slope is that of `dpo` with twice the beta.
    """
    chosen, rejected = _link(scores.logratios, params.exp_clamp_max).unbind(-1)  # [B] each
    margin = params.beta * (chosen - rejected)
    bound = float("inf") if params.r_max is None else 2 * params.r_max
    logit = margin.clamp(-bound, bound)
    return LossOutput(
        losses=-F.logsigmoid(logit),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={
            "chi_po/logit": logit.detach(),
            "chi_po/clipped": (margin.abs() > bound).to(margin.dtype),
        },
    )


def _link(d: Tensor, largest: float) -> Tensor:
    return torch.exp(d.clamp(max=largest)) + d
