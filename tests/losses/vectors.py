"""Worked values of the method sheets, by case id, and how they become scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prefopt import Scores

_FOLDER = Path(__file__).parent.parent / "vectors"
SEQUENCE: list[dict[str, Any]] = json.loads((_FOLDER / "sequence.json").read_text())
REGISTRY: dict[str, dict[str, Any]] = {
    case["method"]: case for case in json.loads((_FOLDER / "registry.json").read_text())
}
SIDES = ("chosen", "rejected")
PRECISIONS = ((torch.float64, 1e-9, 1e-12), (torch.float32, 1e-5, 1e-6))


def cases(method: str, **fixed: Any) -> list[dict[str, Any]]:
    """Cases of a method whose parameters have the `fixed` values."""
    found = [case for case in SEQUENCE if case["method"] == method]
    return [case for case in found if all(case["params"].get(name) == value for name, value in fixed.items())]


def leaves(inputs: Mapping[str, Any], dtype: torch.dtype) -> tuple[list[Tensor], Scores]:
    """Policy log-probabilities of chosen and rejected as leaves, and the scores built on them."""
    if "policy_chosen_token_probs" in inputs:
        return from_distributions(inputs, dtype)
    tokens = "policy_chosen_token_logps" in inputs
    suffix = "_token_logps" if tokens else "_logps"
    policy = [tensor(inputs[f"policy_{side}{suffix}"], dtype).requires_grad_() for side in SIDES]
    known = f"reference_chosen{suffix}" in inputs
    reference = [tensor(inputs[f"reference_{side}{suffix}"], dtype) for side in SIDES] if known else None
    if not tokens:
        both = torch.stack(reference, -1) if reference else None
        return policy, Scores.from_sums(torch.stack(policy, -1), both, **columns(inputs, dtype))
    masks = [torch.tensor(inputs[f"{side}_mask"], dtype=torch.bool) for side in SIDES]
    width = max(mask.shape[-1] for mask in masks)
    return policy, Scores(
        policy=stacked(policy, width),
        reference=stacked(reference, width) if reference else None,
        mask=stacked(masks, width),
        **columns(inputs, dtype),
    )


def columns(inputs: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Tensor]:
    """What some losses read beside log-probabilities, as keyword arguments of `Scores.from_sums`."""
    found: dict[str, Tensor] = {}
    for name, key in (("external", "external_rewards"), ("lengths", "lengths"), ("kl", "position_kl")):
        if f"chosen_{key}" in inputs:
            found[name] = torch.stack([tensor(inputs[f"{side}_{key}"], dtype) for side in SIDES], -1)
    if "kl" in found:
        found["kl"] = found["kl"].unsqueeze(-1)
    return found


def from_distributions(inputs: Mapping[str, Any], dtype: torch.dtype) -> tuple[list[Tensor], Scores]:
    """Logits of the policy as leaves `[B, T, V]`; log-probabilities and KL(reference || policy) follow from them."""
    policy = [tensor(inputs[f"policy_{side}_token_probs"], dtype).log().requires_grad_() for side in SIDES]
    logps, references, kls, masks = [], [], [], []
    for side, logits in zip(SIDES, policy, strict=True):
        ids = torch.tensor(inputs[f"{side}_ids"]).unsqueeze(-1)
        ours, theirs = F.log_softmax(logits, -1), tensor(inputs[f"reference_{side}_token_probs"], dtype).log()
        logps.append(ours.gather(-1, ids).squeeze(-1))
        references.append(theirs.gather(-1, ids).squeeze(-1))
        kls.append((theirs.exp() * (theirs - ours)).sum(-1))
        masks.append(torch.tensor(inputs[f"{side}_mask"], dtype=torch.bool))
    width = max(mask.shape[-1] for mask in masks)
    scores = Scores(
        policy=stacked(logps, width),
        reference=stacked(references, width),
        kl=stacked(kls, width),
        mask=stacked(masks, width),
    )
    return policy, scores


def tensor(values: Any, dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def stacked(values: list[Tensor], width: int) -> Tensor:
    """Chosen and rejected `[B, T_c]`, `[B, T_r]` as one `[B, 2, width]`."""
    return torch.stack([F.pad(value, (0, width - value.shape[-1])) for value in values], 1)


def check_case(loss: Any, case: Mapping[str, Any], *, context: Any = None, by_mean: bool = False) -> None:
    """Losses, and where the case gives them gradients of their mean, in float64 to 1e-9 and float32 to 1e-5.

    `by_mean` compares the mean of the losses with `expected_scalar`, for methods whose value is one for the batch.
    """
    for dtype, rtol, atol in PRECISIONS:
        policy, scores = leaves(case["inputs"], dtype)
        losses = (loss(scores) if context is None else loss(scores, context)).losses
        found, wanted = (losses.mean(), "expected_scalar") if by_mean else (losses, "expected_loss")
        torch.testing.assert_close(found, tensor(case[wanted], dtype), rtol=rtol, atol=atol)
        gradients = torch.autograd.grad(losses.mean(), policy)
        suffix = "_token_logps" if "policy_chosen_token_logps" in case["inputs"] else "_logps"
        known = dict(zip((f"policy_{side}{suffix}" for side in SIDES), gradients, strict=True))
        for name, wanted in case.get("expected_grad", {}).items():  # a name that is not known is an error
            torch.testing.assert_close(known[name], tensor(wanted, dtype), rtol=rtol, atol=atol)


def shared_batch(dtype: torch.dtype = torch.float64, **extras: Any) -> Scores:
    """The batch of every `registry/NAME` entry: three pairs of unequal lengths, policy as a leaf."""
    rows = REGISTRY["registry/inputs"]["inputs"]
    width = max(len(row) for block in rows.values() for row in block)

    def block(model: str) -> Tensor:
        sides = [
            torch.stack([F.pad(tensor(r, dtype), (0, width - len(r))) for r in rows[f"{model}_{s}_tokens"]])
            for s in SIDES
        ]
        return torch.stack(sides, 1)

    lengths = torch.tensor([[len(row) for row in rows[f"policy_{side}_tokens"]] for side in SIDES]).T
    return Scores(
        policy=block("policy").requires_grad_(),
        reference=block("ref"),
        mask=torch.arange(width) < lengths.unsqueeze(-1),
        **extras,
    )


def check_registry(loss: Any, case: Mapping[str, Any]) -> None:
    """An entry `registry/NAME`: losses and both derivatives on the batch that all of them share."""
    for dtype, rtol, atol in PRECISIONS:
        scores = shared_batch(dtype, **_sequence_kl(case["inputs"], dtype))
        losses = loss(scores).losses
        (gradient,) = torch.autograd.grad(losses.sum(), scores.policy)
        expected = case["expected"]
        torch.testing.assert_close(losses, tensor(expected["loss"], dtype), rtol=rtol, atol=atol)
        for number, side in enumerate(SIDES):  # the derivative in the sum is that in any token of the response
            wanted = tensor(expected[f"dloss_d{side}"], dtype)
            torch.testing.assert_close(gradient[:, number, 0], wanted, rtol=rtol, atol=atol)


def _sequence_kl(inputs: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Tensor]:
    """KL of whole responses as per-token values whose sum it is, all of it at the first token."""
    if "seq_kl_chosen" not in inputs:
        return {}
    sums = torch.stack([tensor(inputs[f"seq_kl_{side}"], dtype) for side in SIDES], -1)
    kl = torch.zeros(shared_batch().policy.shape, dtype=dtype)
    kl[..., 0] = sums
    return {"kl": kl}
