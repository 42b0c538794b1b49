"""SLiC: a hinge on whole-response log-probabilities, beside supervised fine-tuning, without a reference."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import torch
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Scores


class SLiCParams(LossParams):
    delta: float = Field(1.0, gt=0, description="gap of the log-probabilities at which pushing ends, nat")
    lam: float = Field(0.1, ge=0, description="weight of the NLL of the chosen response, dimensionless")


@register_loss("slic", params=SLiCParams, source="arXiv:2305.10425 (SLiC-HF)")
def slic(scores: Scores, params: SLiCParams) -> LossOutput:
    """Make the chosen response likelier than the rejected one by a fixed gap, and keep it likely.

        loss_b = max(0, delta - a_b + d_b) - lam * a_b

    with a, d the log-probabilities of chosen and rejected under the policy, in nats.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (log-probabilities, nats).
    Metrics: slic/active, 1 for a pair short of the gap, else 0.
    Source: arXiv:2305.10425.
    Differs: the paper takes the NLL of the fine-tuning target; as other libraries do, we take that of the chosen
        response, summed over its tokens, so that lam compares nats with nats.
    At lam = 0 it is delta times `hinge` at beta = 1/delta with a reference that finds all responses equally likely.
    """
    chosen, rejected = scores.sums.unbind(-1)  # [B] each
    short = torch.relu(params.delta - chosen + rejected)
    return LossOutput(
        losses=short - params.lam * chosen,
        rewards=scores.sums.detach(),
        metrics={"slic/active": (short > 0).to(short.dtype)},
    )
