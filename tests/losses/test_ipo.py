from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import get_loss
from prefopt.testing import make_scores
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry


@pytest.mark.parametrize("case", cases("ipo", average=True), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("ipo", tau=case["params"]["beta"]), case)


def test_shared_batch_values_and_derivatives() -> None:
    check_registry(get_loss("ipo", tau=0.1), REGISTRY["registry/ipo_mean"])


def test_equals_ipo_sum_on_one_token_responses() -> None:
    scores = make_scores(get_loss("ipo"), tokens=1)
    torch.testing.assert_close(get_loss("ipo")(scores).losses, get_loss("ipo_sum")(scores).losses)


def test_pulls_back_beyond_the_target() -> None:
    loss = get_loss("ipo", tau=0.5)  # target gap: 1 nat per token
    scores = make_scores(loss, prompts=2, tokens=1)
    policy = scores.reference.clone()
    policy[0, 0] += 3  # beyond the target
    policy[1, 0] += 0.5  # short of it
    policy.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(dataclasses.replace(scores, policy=policy)).losses.sum(), policy)
    assert gradient[0, 0] > 0 > gradient[1, 0]


def test_starts_at_a_quarter_of_the_inverse_square_of_tau() -> None:
    scores = make_scores(get_loss("ipo"))
    losses = get_loss("ipo", tau=0.1)(dataclasses.replace(scores, policy=scores.reference)).losses
    assert losses.tolist() == pytest.approx([25.0] * len(losses))
