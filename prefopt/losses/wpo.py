"""WPO weighting: pairs count by how likely the policy itself would be to write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from prefopt.losses._registry import register_modifier
from prefopt.params import LossParams
from prefopt.scores import Need, Scores

if TYPE_CHECKING:
    from torch import Tensor


class WPOParams(LossParams):
    clamp: bool = Field(True, description="no pair counts more than 1, dimensionless")


@register_modifier("wpo", params=WPOParams, needs={Need.SUM_SQUARES, Need.TOKENS}, source="arXiv:2406.11827")
def wpo(scores: Scores, params: WPOParams) -> Tensor:
    """Weigh each pair by the likelihood of both its responses under the policy, as if they were its own samples.

        w_b = min(1, exp(mean_t s_t(chosen) + mean_t s_t(rejected)))
        s_t = log policy(y_t) - log sum_v policy(v)^2

    a constant, without gradient. A token that the policy would expect of its own samples has s_t near 0, at any
    entropy of the distribution. The mean over pairs stays a plain one; it is not divided by the weights.

    Shapes: scores [B, 2, T] -> weights [B], dimensionless.
    Source: arXiv:2406.11827 and its authors' code.
    Differs: the authors' code caps weights at 1, other libraries do not; `clamp` says which, the cap by default.
    A weight of 1 leaves a loss as it is.
    """
    expected = scores.policy - scores.sum_squares.log()  # type: ignore[union-attr]  # the need was checked
    typical = scores.total(expected.detach()) / scores.lengths.clamp(min=1)  # [B, 2], nats per token
    weight = typical.sum(-1).exp()
    return weight.clamp(max=1.0) if params.clamp else weight
