from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import get_loss
from prefopt.testing import make_scores
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry


def options(params: dict[str, Any]) -> dict[str, Any]:
    return {"beta": params["beta"], "lam": params.get("lambda", params.get("lambda_"))}


@pytest.mark.parametrize("case", cases("dpop"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("dpop", **options(case["params"])), case)


def test_shared_batch_values_and_derivatives() -> None:
    case = REGISTRY["registry/dpop"]
    check_registry(get_loss("dpop", **options(case["inputs"])), case)


def test_equals_dpo_when_lam_is_zero() -> None:
    scores = make_scores(get_loss("dpop"))
    torch.testing.assert_close(
        get_loss("dpop", beta=0.2, lam=0)(scores).losses, get_loss("dpo", beta=0.2)(scores).losses
    )


def test_equals_dpo_while_the_chosen_response_stands_above_the_reference() -> None:
    scores = make_scores(get_loss("dpop"))
    above = dataclasses.replace(scores, policy=torch.maximum(scores.policy, scores.reference))
    torch.testing.assert_close(get_loss("dpop", beta=0.2)(above).losses, get_loss("dpo", beta=0.2)(above).losses)


@pytest.mark.parametrize("lam", [5.0, 50.0])
def test_chosen_pull_is_one_plus_lam_times_the_rejected_push_below_the_reference(lam: float) -> None:
    loss = get_loss("dpop", lam=lam)
    scores = make_scores(loss, tokens=1)
    policy = (scores.reference - 0.5).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(dataclasses.replace(scores, policy=policy)).losses.sum(), policy)
    torch.testing.assert_close(-gradient[:, 0], (1 + lam) * gradient[:, 1])


def test_first_step_is_plain_dpo() -> None:
    """Every pair starts on the kink, where the tie rule would decide the first update."""
    scores = make_scores(get_loss("dpop"))
    policy = scores.reference.clone().requires_grad_()
    start = dataclasses.replace(scores, policy=policy)
    ours, plain = (
        torch.autograd.grad(get_loss(name, beta=0.3)(start).losses.sum(), policy)[0] for name in ("dpop", "dpo")
    )
    torch.testing.assert_close(ours, plain)
