"""MC-PO: one chosen response against several, hard ones drawn anew at every step by the policy's own reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.context import StepContext
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

if TYPE_CHECKING:
    from torch import Tensor


class MCPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    num_negatives: int = Field(1, ge=1, description="rejected responses drawn per prompt and step, responses")
    sampling: Literal["kernel", "argmax", "uniform"] = Field(
        "kernel", description="how they are drawn: in proportion to e^(score / temperature), the highest, or any"
    )
    score: Literal["implicit_reward", "policy_logp", "policy_logp_mean"] = Field(
        "implicit_reward",
        description="what makes a response hard: beta * log-ratio, its log-probability, or that per token",
    )
    kernel_temperature: float = Field(1.0, gt=0, description="larger draws more evenly, dimensionless")
    include_chosen: bool = Field(False, description="the chosen response may be drawn as well, and then costs log 2")
    replacement: bool = Field(False, description="a response may be drawn more than once")

    def unused(self) -> Mapping[str, str]:
        found = {}
        if self.sampling != "kernel":
            found["kernel_temperature"] = "only `sampling: kernel` reads it"
        if self.sampling == "uniform":
            found["score"] = "`sampling: uniform` reads no score"
        if self.sampling == "argmax":
            found["replacement"] = "`sampling: argmax` takes the highest, each once"
        elif self.num_negatives == 1:
            found["replacement"] = "one response is drawn"
        return found


def kernel_probabilities(values: Tensor, candidates: Tensor, *, temperature: float = 1.0) -> Tensor:
    """softmax(values / temperature) over the candidates, `[B, R]` and bool `[B, R] -> [B, R]`, float64, detached.

    A row without candidates is 0.
    """
    logits = (values.detach().double() / temperature).masked_fill(~candidates, -torch.inf)
    return torch.softmax(logits, -1).masked_fill(~candidates, 0)


def draw(values: Tensor, candidates: Tensor, uniforms: Tensor, params: MCPOParams) -> Tensor:
    """Places of the drawn responses, int64 `[B, M]`, for uniform numbers `[B, M]`; -1 when no candidate is left.

    Each draw takes the first place where the cumulative probability exceeds its number. Shapes: `values` `[B, R]`,
    `candidates` bool `[B, R]`.
    """
    if params.sampling == "argmax":
        hardest = values.detach().masked_fill(~candidates, -torch.inf)
        order = torch.sort(hardest, dim=-1, descending=True, stable=True).indices
        return _padded(torch.where(candidates.gather(-1, order), order, -1), uniforms.shape[-1])
    values = torch.zeros_like(values) if params.sampling == "uniform" else values
    left, found = candidates.clone(), []
    for number in uniforms.unbind(-1):
        chance = kernel_probabilities(values, left, temperature=params.kernel_temperature)
        reached = (chance.cumsum(-1) > number.unsqueeze(-1)) & left
        last = left.shape[-1] - 1 - left.flip(-1).int().argmax(-1)  # where rounding leaves the sum below the number
        place = torch.where(reached.any(-1), reached.int().argmax(-1), last)
        found.append(torch.where(left.any(-1), place, -1))
        if not params.replacement:
            left = left.scatter(-1, place.unsqueeze(-1), False)
    return torch.stack(found, -1)


def _padded(places: Tensor, width: int) -> Tensor:
    return F.pad(places, (0, max(width - places.shape[-1], 0)), value=-1)[:, :width]


def draw_negatives(scores: Scores, params: MCPOParams, context: StepContext) -> Tensor:
    """The responses that this step compares, int64 `[B, 1 + num_negatives]`: the chosen one, then those drawn.

    The draw is keyed by run seed, step and prompt id. -1 stands where a prompt has too few responses.
    """
    values = {
        "implicit_reward": lambda: params.beta * scores.logratios,
        "policy_logp": lambda: scores.sums,
        "policy_logp_mean": lambda: scores.means,
    }[params.score]()
    candidates = scores.present.clone()
    candidates[:, 0] &= params.include_chosen
    uniforms = context.draw(scores.ids, params.num_negatives).to(values.device)
    return F.pad(draw(values, candidates, uniforms, params), (1, 0), value=0)


@register_loss(
    "mc_po",
    params=MCPOParams,
    needs={Need.REFERENCE},
    responses="many",
    select=draw_negatives,
    source="reconstructed from the abstract of arXiv:2502.04567",
    excused={
        f"every_option_acts:{name}": "acts on the draw, before the loss is called; tests/losses/test_mc_po.py says so"
        for name in ("num_negatives", "sampling", "score", "kernel_temperature", "include_chosen", "replacement")
    },
)
def mc_po(scores: Scores, params: MCPOParams) -> LossOutput:
    """Make the chosen response the likeliest by implicit reward among itself and its rejected responses.

        r_bk   = beta * log(policy / reference) of response k, nats times beta; k = 0 is the chosen one
        loss_b = logsumexp_k(r_bk) - r_b0

    over the responses that are there. In training the rejected ones are `num_negatives` that were drawn from all
    candidates with the current policy, k with probability softmax_k(r_bk / kernel_temperature); only they are scored
    with gradient. In evaluation, and called plainly, every response is compared and nothing is drawn. The value at
    policy = reference is log(1 + number of rejected responses).

    Shapes: scores [B, R, T] -> losses [B], rewards [B, R].
    Metrics: mc_po/negatives, rejected responses compared.
    Source: the abstract of arXiv:2502.04567, which says: maximum likelihood with a sampled normaliser, hard negatives
        by a kernel on the parameterised reward. Equation, kernel and defaults are ours; the text was not available.
    Differs: claim no parity with the paper. Early in training the kernel is close to uniform; a low temperature or
        `sampling: argmax` makes negatives hard from the start.
    Equals `dpo` for one rejected response.
    """
    rewards = params.beta * scores.logratios  # [B, R]
    there = scores.present.clone()
    there[:, 0] = True
    return LossOutput(
        losses=rewards.masked_fill(~there, -torch.inf).logsumexp(-1) - rewards[:, 0],
        rewards=rewards.detach(),
        metrics={"mc_po/negatives": there[:, 1:].sum(-1).to(rewards.dtype)},
    )
