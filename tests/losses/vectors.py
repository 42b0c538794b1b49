"""Worked values of the method sheets, by case id, and how they become scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prefopt import Scores

_FOLDER = Path(__file__).parent.parent / "vectors"
SEQUENCE: list[dict[str, Any]] = json.loads((_FOLDER / "sequence.json").read_text())
REGISTRY: dict[str, dict[str, Any]] = {
    case["method"]: case for case in json.loads((_FOLDER / "registry.json").read_text())
}


def cases(method: str, **fixed: Any) -> list[dict[str, Any]]:
    """Cases of a method whose parameters have the `fixed` values."""
    found = [case for case in SEQUENCE if case["method"] == method]
    return [case for case in found if all(case["params"].get(name) == value for name, value in fixed.items())]


def leaves(inputs: dict[str, Any], dtype: torch.dtype) -> tuple[list[Tensor], Scores]:
    """Policy log-probabilities of chosen and rejected as leaves, and the scores built on them."""
    tokens = "policy_chosen_token_logps" in inputs
    suffix = "_token_logps" if tokens else "_logps"
    policy = [
        torch.tensor(inputs[f"policy_{side}{suffix}"], dtype=dtype, requires_grad=True)
        for side in ("chosen", "rejected")
    ]
    known = f"reference_chosen{suffix}" in inputs
    reference = (
        [torch.tensor(inputs[f"reference_{side}{suffix}"], dtype=dtype) for side in ("chosen", "rejected")]
        if known
        else None
    )
    if not tokens:
        return policy, Scores.from_sums(torch.stack(policy, -1), torch.stack(reference, -1) if reference else None)
    masks = [torch.tensor(inputs[f"{side}_mask"], dtype=torch.bool) for side in ("chosen", "rejected")]
    width = max(mask.shape[-1] for mask in masks)
    return policy, Scores(
        policy=_stacked(policy, width),
        reference=_stacked(reference, width) if reference else None,
        mask=_stacked(masks, width),
    )


def _stacked(values: list[Tensor], width: int) -> Tensor:
    return torch.stack([torch.nn.functional.pad(value, (0, width - value.shape[-1])) for value in values], 1)


def check_case(loss: Any, case: dict[str, Any]) -> None:
    """Losses, and where the case gives them gradients of their mean, in float64 to 1e-9 and float32 to 1e-5."""
    for dtype, rtol, atol in ((torch.float64, 1e-9, 1e-12), (torch.float32, 1e-5, 1e-6)):
        policy, scores = leaves(case["inputs"], dtype)
        losses = loss(scores).losses
        torch.testing.assert_close(losses, torch.tensor(case["expected_loss"], dtype=dtype), rtol=rtol, atol=atol)
        for side, gradient in zip(("chosen", "rejected"), torch.autograd.grad(losses.mean(), policy), strict=True):
            expected = case.get("expected_grad", {}).get(f"policy_{side}_logps")
            if expected is not None:
                torch.testing.assert_close(gradient, torch.tensor(expected, dtype=dtype), rtol=rtol, atol=atol)


def check_registry(loss: Any, case: dict[str, Any]) -> None:
    """An entry `registry/NAME`: losses and both derivatives on the batch that all of them share."""
    shared = REGISTRY["registry/inputs"]["inputs"]
    ragged = {side: [torch.tensor(row, dtype=torch.float64) for row in rows] for side, rows in shared.items()}
    width = max(len(row) for rows in ragged.values() for row in rows)

    def block(model: str) -> Tensor:
        sides = [
            torch.stack([torch.nn.functional.pad(r, (0, width - len(r))) for r in ragged[f"{model}_{s}_tokens"]])
            for s in SIDES
        ]
        return torch.stack(sides, 1)

    lengths = torch.tensor([[len(row) for row in ragged[f"policy_{side}_tokens"]] for side in SIDES]).T
    policy = block("policy").requires_grad_()
    out = loss(Scores(policy=policy, reference=block("ref"), mask=torch.arange(width) < lengths.unsqueeze(-1)))
    (gradient,) = torch.autograd.grad(out.losses.sum(), policy)
    expected = case["expected"]
    torch.testing.assert_close(out.losses, torch.tensor(expected["loss"], dtype=torch.float64), rtol=1e-10, atol=1e-12)
    for number, side in enumerate(SIDES):  # the derivative in the sum is that in any token of the response
        wanted = torch.tensor(expected[f"dloss_d{side}"], dtype=torch.float64)
        torch.testing.assert_close(gradient[:, number, 0], wanted, rtol=1e-9, atol=1e-12)


SIDES = ("chosen", "rejected")
