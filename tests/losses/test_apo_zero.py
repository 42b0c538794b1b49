from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import from_ratios, gradient, on_random_scores
from tests.losses.vectors import cases, check_case


@pytest.mark.parametrize("case", cases("apo_zero"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("apo_zero", **case["params"]), case)


@on_random_scores("apo_zero")
def test_equals_apo_down_where_the_chosen_response_stands_at_the_reference(scores: Scores) -> None:
    policy = torch.stack([scores.reference[:, 0], scores.policy[:, 1]], 1)
    at = dataclasses.replace(scores, policy=policy)
    torch.testing.assert_close(get_loss("apo_zero")(at).losses, get_loss("apo_down")(at).losses)


def test_starts_at_one_and_moves_both_responses_alike() -> None:
    scores = make_scores(get_loss("apo_zero"))
    start = dataclasses.replace(scores, policy=scores.reference)
    assert get_loss("apo_zero")(start).losses.tolist() == [1.0] * 5
    found = gradient(get_loss("apo_zero", beta=0.2), start)[..., 0]
    torch.testing.assert_close(found, torch.tensor([[-0.05, 0.05]] * 5, dtype=torch.float64))


def test_each_response_is_anchored_by_itself() -> None:
    """Other than under DPO, what happens to one response does not depend on the other."""
    loss = get_loss("apo_zero")
    near, far = gradient(loss, from_ratios([1.0], [0.0])), gradient(loss, from_ratios([1.0], [-50.0]))
    assert near[0, 0] == far[0, 0]


def test_gradients_saturate_at_both_ends() -> None:
    found = gradient(get_loss("apo_zero", beta=1.0), from_ratios([60.0, -60.0], [-60.0, 60.0]))
    assert found.abs().max() < 1e-20
