from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from tests.losses.drawn import from_ratios, gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry


@pytest.mark.parametrize("case", cases("r_dpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("r_dpo", **case["params"]), case)


def test_shared_batch_values_and_derivatives() -> None:
    case = REGISTRY["registry/r_dpo_length"]
    check_registry(get_loss("r_dpo", **case["inputs"]), case)


@on_random_scores("r_dpo")
def test_equals_dpo_when_length_is_free(scores: Scores) -> None:
    same_values_and_gradients(value_of("r_dpo", alpha=0), value_of("dpo"), scores)


@on_random_scores("r_dpo")
def test_equals_dpo_for_responses_of_equal_length(scores: Scores) -> None:
    full = dataclasses.replace(scores, mask=torch.ones_like(scores.mask))
    same_values_and_gradients(value_of("r_dpo", alpha=0.5), value_of("dpo"), full)


def test_pushes_less_where_the_chosen_response_is_longer() -> None:
    """The sign that many ports turn around."""
    loss = get_loss("r_dpo", alpha=0.05)
    scores = from_ratios([0.0] * 3, [0.0] * 3, lengths=torch.tensor([[30, 10], [20, 20], [10, 30]]))
    longer, equal, shorter = (-gradient(loss, scores)[:, 0, 0]).tolist()
    assert shorter > equal > longer > 0
    assert loss(scores).metrics["r_dpo/length_gap"].tolist() == [20, 0, -20]


def test_is_dpo_on_rewards_less_alpha_per_token() -> None:
    """The margin at which the loss is log 2 falls by alpha / beta for every token more."""
    scores = from_ratios([-0.5 * 20 / 0.2], [0.0], lengths=torch.tensor([[30, 10]]))
    loss = get_loss("r_dpo", beta=0.2, alpha=0.5)
    assert loss(scores).losses.item() == pytest.approx(0.6931471805599453)
