from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import PROPERTIES, make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.test_ddpo import deviation
from tests.losses.token_vectors import check_token_case, token_cases


@on_random_scores("dorpo")
def test_equals_orpo_at_a_weight_of_one(scores: Scores) -> None:
    even = replace(scores, deviation=torch.ones_like(scores.deviation))
    for inside in (True, False):
        ours = value_of("dorpo", beta=0.3, weight_inside=inside)
        same_values_and_gradients(ours, value_of("orpo", lam=0.3), even)


@pytest.mark.parametrize("case", token_cases("dorpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_token_case(get_loss("dorpo", **case["params"]), case, deviation=deviation)


def test_a_weight_of_zero_silences_the_pair() -> None:
    for inside in (True, False):
        loss = get_loss("dorpo", weight_inside=inside)
        scores = make_scores(loss)
        assert not gradient(loss, replace(scores, deviation=torch.zeros_like(scores.deviation))).any()


@pytest.mark.parametrize("logp", [0.0, -1e-9, -1e4])
def test_certain_and_impossible_responses_have_finite_values_and_gradients(logp: float) -> None:
    loss = get_loss("dorpo")
    for dtype in (torch.float64, torch.float32):
        scores = make_scores(loss, dtype=dtype)
        even = replace(scores, policy=torch.full_like(scores.policy, logp))
        assert torch.isfinite(loss(even).losses).all()
        assert torch.isfinite(gradient(loss, even)).all()


@pytest.mark.parametrize("title", PROPERTIES)
def test_the_weight_outside_keeps_the_contract(title: str) -> None:
    PROPERTIES[title](get_loss("dorpo", weight_inside=False))
