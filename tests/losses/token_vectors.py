"""Worked values of the step- and token-level methods, by case id, and how they become scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prefopt import Scores
from prefopt.losses import Loss

TOKEN: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "vectors" / "token.json").read_text())
SIDES = ("chosen", "rejected")
PRECISIONS = ((torch.float64, 1e-9, 1e-12), (torch.float32, 1e-5, 1e-6))


def token_cases(method: str) -> list[dict[str, Any]]:
    """The cases of a method."""
    return [case for case in TOKEN if case["method"] == method]


def both(inputs: dict[str, Any], column: str, dtype: torch.dtype = torch.float64) -> Tensor:
    """A column of both sides, `[B, 2, ...]`."""
    return torch.stack([torch.tensor(inputs[column.format(side)], dtype=dtype) for side in SIDES], 1)


def step_rewards_of(inputs: dict[str, Any], dtype: torch.dtype) -> Tensor:
    """Rewards as `first_error_step` makes them: 1 for right steps, 0 from the first wrong one on, `[B, 2, S]`."""
    steps = torch.arange(1, 5)
    rejected = steps < torch.tensor(inputs["first_error_step"]).unsqueeze(-1)
    return torch.stack([torch.ones_like(rejected), rejected], 1).to(dtype)


def pair_scores(
    inputs: dict[str, Any], dtype: torch.dtype, *, whole: bool = False, **columns: Any
) -> tuple[list[Tensor], Scores]:
    """Policy log-probabilities of chosen and rejected as leaves, and the scores built on them.

    The mask is that of the case, or with `whole` every token that is no padding.
    """
    policy = [torch.tensor(inputs[f"policy_{side}_logps"], dtype=dtype, requires_grad=True) for side in SIDES]
    mask = both(inputs, "{}_step_ids") > 0 if whole or "chosen_mask" not in inputs else both(inputs, "{}_mask") > 0
    reference = both(inputs, "ref_{}_logps", dtype)
    return policy, Scores(policy=torch.stack(policy, 1), reference=reference, mask=mask, **columns)


def check_token_case(loss: Loss, case: dict[str, Any], *, whole: bool = False, **columns: Any) -> None:
    """Losses, their mean, and where the case has it the gradient of the mean, in both precisions."""
    for dtype, rtol, atol in PRECISIONS:
        given = {name: make(case["inputs"], dtype) for name, make in columns.items()}
        policy, scores = pair_scores(case["inputs"], dtype, whole=whole, **given)
        losses = loss(scores).losses
        torch.testing.assert_close(losses, torch.tensor(case["expected_loss"], dtype=dtype), rtol=rtol, atol=atol)
        mean = torch.tensor(case["expected_mean"], dtype=dtype)
        torch.testing.assert_close(losses.mean(), mean, rtol=rtol, atol=atol)
        for side, gradient in zip(SIDES, torch.autograd.grad(losses.mean(), policy), strict=True):
            wanted = case.get("expected_extra", {}).get(f"grad_policy_{side}_logps")
            if wanted is not None:
                torch.testing.assert_close(gradient, torch.tensor(wanted, dtype=dtype), rtol=rtol, atol=atol)


def steps_of(inputs: dict[str, Any], dtype: torch.dtype) -> Tensor:
    """Step of each token, int64 `[B, 2, T]`, -1 in none."""
    return both(inputs, "{}_step_ids", torch.int64) - 1


def column(name: str) -> Any:
    """What makes the tensor of a column of both sides."""
    return lambda inputs, dtype: both(inputs, name, dtype)
