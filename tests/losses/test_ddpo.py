from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.losses._weights import deviation_weights
from prefopt.testing import make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.token_vectors import check_token_case, token_cases


def deviation(inputs: dict[str, Any], dtype: torch.dtype) -> torch.Tensor:
    """The chosen response's weight among its prompt's responses, beside a rejected one that is not read."""
    weights = deviation_weights(torch.tensor(inputs["group_deviations"], dtype=dtype))
    chosen = weights.gather(-1, torch.tensor(inputs["chosen_index"]).unsqueeze(-1))
    return torch.cat([chosen, chosen * torch.nan], -1)


@on_random_scores("ddpo")
def test_equals_dpo_at_a_weight_of_one(scores: Scores) -> None:
    even = replace(scores, deviation=torch.ones_like(scores.deviation))
    same_values_and_gradients(value_of("ddpo", beta=0.2), value_of("dpo", beta=0.2), even)


@pytest.mark.parametrize("case", token_cases("ddpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_token_case(get_loss("ddpo", **case["params"]), case, deviation=deviation)
    weights = deviation(case["inputs"], torch.float64)[:, 0]
    assert weights.tolist() == pytest.approx(case["expected_extra"]["weights"], rel=1e-9)


def test_weights_average_to_one_over_the_responses_of_a_prompt() -> None:
    found = deviation_weights(torch.tensor([[0.3, 0.1, 0.8], [0.2, 0.2, 0.2]]).double())
    torch.testing.assert_close(found.mean(-1), torch.ones(2).double())
    assert found[0, 1] == 0
    assert found[1].tolist() == [1.0, 1.0, 1.0]


def test_the_most_typical_response_teaches_nothing() -> None:
    loss = get_loss("ddpo")
    scores = make_scores(loss)
    typical = scores.deviation.clone()
    typical[0, 0] = 0
    found = gradient(loss, replace(scores, deviation=typical))
    assert not found[0].any()
    assert found[1:].any((1, 2)).all()
