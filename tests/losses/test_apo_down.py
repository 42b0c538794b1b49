from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import from_ratios, gradient, on_random_scores
from tests.losses.vectors import cases, check_case


@pytest.mark.parametrize("case", cases("apo_down"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("apo_down", **case["params"]), case)


@on_random_scores("apo_down")
def test_equals_apo_zero_where_the_chosen_response_stands_at_the_reference(scores: Scores) -> None:
    policy = torch.stack([scores.reference[:, 0], scores.policy[:, 1]], 1)
    at = dataclasses.replace(scores, policy=policy)
    torch.testing.assert_close(get_loss("apo_down")(at).losses, get_loss("apo_zero")(at).losses)


@on_random_scores("apo_down")
def test_lowers_both_responses_together(scores: Scores) -> None:
    """Moving both by the same amount leaves their gap, and the slope of sigmoid(beta c) alone is left."""
    found = gradient(get_loss("apo_down", beta=0.2), scores)[..., 0].sum(-1)
    reward = torch.sigmoid(0.2 * scores.logratios[:, 0])
    torch.testing.assert_close(found, 0.2 * reward * (1 - reward))


def test_starts_at_one_with_the_chosen_response_at_rest() -> None:
    scores = make_scores(get_loss("apo_down"))
    start = dataclasses.replace(scores, policy=scores.reference)
    assert get_loss("apo_down")(start).losses.tolist() == [1.0] * 5
    found = gradient(get_loss("apo_down", beta=0.2), start)[..., 0]
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.05]] * 5, dtype=torch.float64))


def test_once_the_pair_is_apart_the_chosen_response_goes_down() -> None:
    assert gradient(get_loss("apo_down"), from_ratios([0.0], [-20.0]))[0, 0, 0] > 0
