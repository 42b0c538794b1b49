"""Scores to try a loss on: random ones, padded ones, some of their prompts."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from prefopt.context import StepContext
from prefopt.losses import Loss
from prefopt.scores import LossOutput, Need, Scores


def make_scores(
    loss: Loss,
    *,
    prompts: int = 5,
    tokens: int = 7,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    scale: float = 1.0,
) -> Scores:
    """Random scores with everything the loss reads: unequal lengths from one token up, policy near the reference.

    Shapes: `[prompts, R, tokens]` with R = 1, 2 or 4 for a loss on single responses, pairs, or many.
    """
    generator = torch.Generator().manual_seed(seed)
    responses = {"single": 1, "pair": 2, "many": 4}[loss.responses]
    shape = (prompts, responses, tokens)

    def uniform(*size: int) -> Tensor:
        return torch.rand(*size, generator=generator, dtype=torch.float64)

    lengths = torch.randint(1, tokens + 1, shape[:2], generator=generator)
    reference = -2 * uniform(*shape) * scale
    policy = reference + (uniform(*shape) - 0.5) * scale
    columns: dict[Need, Tensor] = {
        Need.STEPS: torch.arange(tokens).div(2, rounding_mode="floor").expand(shape).clone(),
        Need.STEP_REWARDS: uniform(*shape[:2], (tokens + 1) // 2),
        Need.WEIGHTS: uniform(*shape),
        Need.TOKEN_SCORES: uniform(*shape),
        Need.DIFF: uniform(*shape) < 0.5,
        Need.KL: uniform(*shape),
        Need.SUM_SQUARES: 0.1 + 0.9 * uniform(*shape),
        Need.EXTERNAL: uniform(*shape[:2]),
        Need.DEVIATION: uniform(*shape[:2]),
        Need.LABELS: uniform(prompts) < 0.5,
        Need.MISMATCHED: uniform(prompts) - 0.3,
        Need.REFERENCE: reference,
    }
    given = {need.value: value for need, value in columns.items() if need in loss.needs}
    floats: dict[str, Any] = {
        name: value.to(dtype) if value.is_floating_point() else value for name, value in given.items()
    }
    mask = torch.arange(tokens) < lengths.unsqueeze(-1)
    return Scores(policy=policy.to(dtype), mask=mask, ids=torch.arange(prompts), **floats)


def value_and_gradient(loss: Loss, scores: Scores, context: StepContext | None = None) -> tuple[LossOutput, Tensor]:
    """The output, and the gradient `[B, R, T]` of the sum of its losses."""
    policy = scores.policy.clone().requires_grad_()
    out = loss(dataclasses.replace(scores, policy=policy), context)
    (gradient,) = torch.autograd.grad(out.losses.sum(), policy)
    return out, gradient


_PER_TOKEN = ("policy", "reference", "weights", "token_scores", "kl", "sum_squares", "steps", "diff", "mask")


def padded(scores: Scores, filler: float, *, by: int = 3) -> Scores:
    """The same scores with `by` more masked positions, all masked ones holding `filler`."""
    changes: dict[str, Any] = {}
    mask = torch.nn.functional.pad(scores.mask, (0, by), value=False)
    for name in _PER_TOKEN:
        value = getattr(scores, name)
        if value is None:
            continue
        if value.is_floating_point():
            changes[name] = torch.nn.functional.pad(value, (0, by)).masked_fill(~mask, filler)
        else:
            changes[name] = torch.nn.functional.pad(value, (0, by), value=-1 if name == "steps" else 0)
    return dataclasses.replace(scores, **changes)


def rows_of(scores: Scores, rows: Tensor) -> Scores:
    """Some of the prompts."""
    given = {f.name: getattr(scores, f.name) for f in dataclasses.fields(scores)}
    picked: dict[str, Any] = {name: value[rows] for name, value in given.items() if isinstance(value, Tensor)}
    return dataclasses.replace(scores, **picked)
