"""SamPO: DPO on as many tokens of the longer response as the shorter one has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from prefopt._torch import F
from prefopt.context import Draw, StepContext
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

if TYPE_CHECKING:
    from torch import Tensor


class SamPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    mode: Literal["sample", "expected", "average"] = Field(
        "sample", description="draw tokens, take the expectation of the draw, or average and scale by the mean length"
    )


@register_loss(
    "sampo",
    params=SamPOParams,
    needs={Need.REFERENCE, Need.TOKENS},
    coupled=lambda params: params.mode == "sample",
    source="arXiv:2406.10957 (down-sampled log-ratios)",
)
def sampo(scores: Scores, params: SamPOParams, context: StepContext | None = None) -> LossOutput:
    """Take the length out of the margin: both responses count with the same number of tokens.

        loss_b = -log sigmoid(beta * (c~_b - r~_b)),    n = min(n_c, n_r)

        sample    c~ = sum of log(policy / reference) over n of the n_c scored tokens, drawn without replacement
        expected  c~ = n / n_c * c,   the expectation of the draw
        average   c~ = (n_c + n_r) / 2 * c / n_c

    with c the chosen log-ratio in nats, n_c its length in tokens, and r~ likewise. The same positions index policy and
    reference. The draw is keyed by run seed, step and prompt id; called without `context`, and in evaluation, `sample`
    is `expected`.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2] (beta times the log-ratio of all tokens).
    Metrics: sampo/chosen and sampo/rejected, c~ and r~, nats.
    Source: arXiv:2406.10957.
    Differs: the authors' code draws once for the policy and again for the reference, so that its log-ratio mixes
        positions; the paper's sum of token log-ratios is followed. It draws in evaluation too.
    Equals `dpo` where both responses have the same length.
    """
    lengths = scores.lengths  # [B, 2]
    shorter = lengths.amin(-1, keepdim=True)
    if params.mode == "sample" and context is not None and context.training:
        kept = sampled(scores.mask, context.draw, scores.ids)
        logratios = scores.total((scores.policy - scores.reference).masked_fill(~kept, 0))  # type: ignore[operator]
    elif params.mode == "average":
        logratios = scores.logratios * (lengths.mean(-1, keepdim=True) / lengths.clamp(min=1))
    else:
        logratios = scores.logratios * (shorter / lengths.clamp(min=1))
    chosen, rejected = logratios.unbind(-1)  # [B] each
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected)),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"sampo/chosen": chosen.detach(), "sampo/rejected": rejected.detach()},
    )


def sampled(mask: Tensor, draw: Draw, ids: Tensor | None) -> Tensor:
    """As many scored tokens of both responses as the shorter one has, bool `[B, 2, T]`."""
    count, responses, tokens = mask.shape
    # number 2t + r belongs to token t of response r, so that padding moves none
    noise = draw(ids, tokens * responses).view(count, tokens, responses).transpose(1, 2)
    order = noise.masked_fill(~mask, -1).argsort(-1, descending=True)
    place = order.argsort(-1)  # [B, 2, T], 0 for the largest number
    return mask & (place < mask.sum(-1).amin(-1).view(-1, 1, 1))
