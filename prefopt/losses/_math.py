"""What several losses share: terms with a mask or a gather in them, and primitives that are easy to get wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from prefopt._torch import torch
from prefopt.context import StepContext
from prefopt.scores import Scores

if TYPE_CHECKING:
    from torch import Tensor

EXPONENT = 80.0
"""Largest exponent that is taken: e^80 is 5.5e34, and a float32 ends at 3.4e38. Beyond it the gradient is zero."""


def _full_name(value: Any) -> Any:
    return "batch_tokens" if value == "token" else value


NLLNorm = Annotated[Literal["sequence", "batch_tokens"], BeforeValidator(_full_name)]
"""What a negative log-likelihood is divided by; `token`, a short name of `batch_tokens`, is taken too."""


def chosen_nll(scores: Scores, norm: str, context: StepContext | None) -> Tensor:
    """Negative log-likelihood of the chosen responses, `[B]`, nats per token; 0 for a response without tokens.

    `sequence` divides each by its own length. `batch_tokens` gives `N * nll_b / (tokens of all N chosen responses)`,
    over all ranks, so that the mean over prompts is the mean over tokens. In evaluation, where no number may depend on
    who stands beside it, and without `context`, both are the same.
    """
    if norm == "sequence" or context is None or not context.training:
        return -scores.means[:, 0]
    lengths = context.gather(scores.lengths[:, 0])  # [N]
    return -scores.sums[:, 0] * (len(lengths) / lengths.sum().clamp(min=1))


def nll_window(params: Any) -> int:
    """For registration: the token mean over the batch compares prompts, the mean per response does not."""
    return 2 if params.nll_norm == "batch_tokens" else 0


def nll_coupled(params: Any) -> bool:
    """For registration: only the token mean over the batch reads a context."""
    return bool(params.nll_norm == "batch_tokens")


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - e^x) for x < 0, without loss of digits at either end (Maechler 2012).

    The branch that is not taken gets an input that is harmless to it: its derivative would be infinite, and zero times
    infinity reaches the gradient.
    """
    half = -math.log(2)
    near = torch.log(-torch.expm1(x.clamp(min=half)))
    far = torch.log1p(-torch.exp(x.clamp(max=half)))
    return torch.where(x > half, near, far)


def score_gap(scores: Scores) -> Tensor:
    """External score of the chosen response less that of the rejected one, `[B]`, a constant in the loss's dtype."""
    assert scores.external is not None  # a declared need, checked before the call
    chosen, rejected = scores.external.detach().to(scores.policy.dtype).unbind(-1)
    return chosen - rejected


def position_kl(scores: Scores) -> Tensor:
    """KL(reference || policy) summed over each response's scored positions, `[B, R]`, nats, with its gradient."""
    assert scores.kl is not None  # a declared need, checked before the call
    return scores.total(scores.kl.to(scores.policy.dtype))
