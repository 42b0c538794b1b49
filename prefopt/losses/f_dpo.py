"""f-DPO: DPO with another divergence than the reverse KL holding the policy to the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from prefopt._torch import F, torch
from prefopt.losses._math import EXPONENT
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

if TYPE_CHECKING:
    from torch import Tensor


def _full_name(value: Any) -> Any:
    return "jensen_shannon" if value == "js" else value


Divergence = Annotated[
    Literal["reverse_kl", "forward_kl", "jensen_shannon", "alpha"], BeforeValidator(_full_name)
]  # `js`, as others write it, is taken too


class FDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    divergence: Divergence = Field("jensen_shannon", description="what holds the policy to the reference")
    alpha: float = Field(
        0.5, gt=0, le=1, description="of the alpha divergence: 0 tends to reverse KL, 1 is forward KL, dimensionless"
    )

    def unused(self) -> Mapping[str, str]:
        return {} if self.divergence == "alpha" else {"alpha": "only `divergence: alpha` reads it"}


@register_loss("f_dpo", params=FDPOParams, needs={Need.REFERENCE}, source="arXiv:2309.16240")
def f_dpo(scores: Scores, params: FDPOParams) -> LossOutput:
    """Compare the derivative of an f-divergence at the two likelihood ratios in place of their logarithms.

        loss_b = -log sigmoid(beta * (s(c_b) - s(r_b))),    s(d) = f'(e^d) up to a constant

        reverse_kl      s(d) = d
        forward_kl      s(d) = 1 - e^-d
        jensen_shannon  s(d) = log 2 + log sigmoid(d)
        alpha           s(d) = (1 - e^(-alpha d)) / alpha

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats. Exponents are clamped at 80; a
    response further below the reference than that gets no gradient. Under the Jensen-Shannon divergence s is bounded
    above, so margins cannot grow by raising the chosen response alone.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (beta times the log-ratio, whatever the divergence).
    Metrics: f_dpo/score_chosen and f_dpo/score_rejected, s.
    Source: arXiv:2309.16240.
    Differs: other trainers write (u^(a - 1) - 1) / (a - 1) for the alpha divergence, with a = 1 - alpha: the same at
        0.5 and nowhere else. They leave the exponent of the forward KL free, which ends in inf - inf on long responses.
    Equals `dpo` with `divergence: reverse_kl`, and tends to it for alpha -> 0.
    """
    s = _score(scores.logratios, params)  # [B, 2]
    chosen, rejected = s.unbind(-1)
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected)),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"f_dpo/score_chosen": chosen.detach(), "f_dpo/score_rejected": rejected.detach()},
    )


def _score(d: Tensor, params: FDPOParams) -> Tensor:
    if params.divergence == "reverse_kl":
        return d
    if params.divergence == "jensen_shannon":
        return math.log(2) + F.logsigmoid(d)
    alpha = params.alpha if params.divergence == "alpha" else 1.0
    return -torch.expm1((-alpha * d).clamp(max=EXPONENT)) / alpha
