"""How hard a loss pulls each response of a pair: its derivative in their log-probabilities, no model needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prefopt.errors import ConfigError

if TYPE_CHECKING:
    from prefopt.context import StepContext
    from prefopt.scores import LossOutput, Scores


@dataclass(frozen=True)
class Coefficients:
    """c+ = -dL/d log pi(chosen) and c- = dL/d log pi(rejected) of each pair, `[B]`, 1/nat.

    To first order the step of a pair changes log pi(chosen) by c+ |g+|^2 - c- <g+, g->, with g the gradients of the two
    log-probabilities: the pair's own update lowers its chosen response where c- <g+, g-> is above c+ |g+|^2.
    """

    chosen: Tensor
    rejected: Tensor

    @property
    def ratio(self) -> Tensor:
        """c- / c+, `[B]`: 1 for DPO, below 1 for losses that hold on to the chosen response."""
        return self.rejected / self.chosen


def gradient_coefficients(loss: Any, scores: Scores, context: StepContext | None = None) -> Coefficients:
    """The coefficients of any loss on pairs, by autograd on detached log-probabilities.

    A response's log-probability is changed evenly over its scored tokens. For a loss that reads sums or means that is
    the derivative in the sum; for a loss that weighs tokens it is the mean of its tokens' derivatives. With a
    `context`, a loss that looks beyond its own pairs is differentiated as a whole; without one, pair by pair.

    Shapes: scores `[B, 2, T]`, from `Scores` or `Scores.from_sums` -> `[B]`. `loss` is what `get_loss(NAME)` gives.
    Raises: `ConfigError` for a loss on other than pairs.
    """
    if scores.policy.shape[1] != 2:
        raise ConfigError(
            f"gradient coefficients are those of pairs; got {scores.policy.shape[1]} responses per prompt."
        )
    policy = scores.policy.detach().requires_grad_()
    with torch.enable_grad():
        out: LossOutput = loss(replace(scores, policy=policy), context)
        (slopes,) = torch.autograd.grad(out.losses.sum(), policy)
    pulls = mean_slopes(slopes, scores.mask)
    return Coefficients(-pulls[:, 0], pulls[:, 1])


def mean_slopes(slopes: Tensor, mask: Tensor) -> Tensor:
    """Derivatives in the log-probabilities of tokens `[B, R, T]` -> in those of whole responses `[B, R]`, 1/nat.

    A response's log-probability is changed evenly over its scored tokens: the mean of their derivatives.
    """
    return slopes.masked_fill(~mask, 0).sum(-1) / mask.sum(-1).clamp(min=1)
