"""`coupling: step`: a batch-coupled loss sees every prompt of the optimizer step, however it was cut.

All micro-batches are scored without gradient, the loss is evaluated on them as one batch, and its derivatives with
respect to the token values are kept, one number per token. Each micro-batch then runs forward and backward once more
against those numbers. By the chain rule the sum is the exact gradient, for any loss; the price is one forward pass
without gradient, and a model that says the same twice, so without dropout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from prefopt.context import StepContext
from prefopt.losses import Objective
from prefopt.scores import LossOutput, Scores, TokenStats

PREPARED = "prepared"
"""The batch's mark that its loss is known and only the gradient is to be computed."""

DERIVATIVES = {"policy": "policy_derivative", "kl": "kl_derivative"}
"""Fields of `Scores` that carry gradient, and the batch's name for the loss's derivative with respect to each."""


def joined(parts: Sequence[Scores]) -> Scores:
    """Micro-batches as one batch, padded to the longest response, the most responses and the most steps."""
    columns: dict[str, Any] = {}
    for item in fields(Scores):
        values = [getattr(part, item.name) for part in parts]
        if all(isinstance(value, Tensor) for value in values):  # a column that some rows lack is none of the whole
            sizes = [max(value.shape[axis] for value in values) for axis in range(1, values[0].dim())]
            filler = -1 if item.name == "steps" else False if values[0].dtype == torch.bool else 0
            columns[item.name] = torch.cat([_padded(value, sizes, filler) for value in values])
    return Scores(**columns)


def _padded(value: Tensor, sizes: Sequence[int], filler: int | bool) -> Tensor:
    room = [want - have for want, have in zip(sizes, value.shape[1:], strict=True)]
    return pad(value, [n for extra in reversed(room) for n in (0, extra)], value=filler)


@dataclass(frozen=True)
class Linearized:
    """The objective on all micro-batches as one batch: its output, the scores it was given, its derivative in the
    policy's log-probabilities `[B, R, T]`, and for each micro-batch the derivatives `[b, R, T]` of `DERIVATIVES`.
    """

    out: LossOutput
    scores: Scores
    slopes: Tensor
    parts: list[dict[str, Tensor]]


def linearized(
    parts: Sequence[Scores], weights: Sequence[Tensor], objective: Objective, context: StepContext
) -> Linearized:
    """Differentiate the weighted sum of losses of all micro-batches. Shapes: `weights` `[b]` each."""
    whole = joined(parts)
    leaves = {name: getattr(whole, name).clone().requires_grad_() for name in DERIVATIVES if _given(whole, name)}
    with torch.enable_grad():
        out = objective(replace(whole, **leaves), context)
        total = (out.losses * torch.cat(list(weights))).sum()
        slopes = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, materialize_grads=True)
    start, found = 0, []
    for part in parts:
        b, r, t = part.mask.shape
        rows = slice(start, start + b)
        found.append({DERIVATIVES[n]: s[rows, :r, :t].contiguous() for n, s in zip(leaves, slopes, strict=True)})
        start += b
    return Linearized(replace(out, losses=out.losses.detach()), whole, slopes[0], found)


def _given(scores: Scores, name: str) -> bool:
    return getattr(scores, name) is not None


def surrogate(stats: TokenStats, batch: dict[str, Tensor]) -> Tensor:
    """A number whose gradient is this micro-batch's share of the step's: token values against kept derivatives."""
    terms = {"policy": stats.logps, "kl": stats.kl}
    total = torch.zeros((), device=batch["mask"].device)
    for name, key in DERIVATIVES.items():
        value = terms[name]
        if key in batch and value is not None:
            total = total + (value.masked_fill(~batch["mask"], 0) * batch[key]).sum()
    return total
