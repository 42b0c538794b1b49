from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import ConfigError, Scores, get_loss
from tests.losses.drawn import from_ratios, gradient, on_random_scores, same_values_and_gradients
from tests.losses.vectors import cases, check_case


@pytest.mark.parametrize("case", cases("slic"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("slic", delta=case["params"]["delta"], lam=case["params"]["lambda"]), case)


@on_random_scores("hinge")
def test_without_nll_is_a_hinge_under_a_reference_that_finds_all_responses_equally_likely(scores: Scores) -> None:
    flat = dataclasses.replace(scores, reference=torch.zeros_like(scores.policy))
    same_values_and_gradients(
        lambda s: get_loss("slic", delta=2.5, lam=0)(s).losses,
        lambda s: 2.5 * get_loss("hinge", beta=0.4)(s).losses,
        flat,
    )


def test_needs_no_reference_and_does_not_see_one() -> None:
    assert not get_loss("slic").needs
    scores = from_ratios([0.5, -2.0], [0.0, 1.0])
    without = dataclasses.replace(scores, reference=None)
    torch.testing.assert_close(get_loss("slic")(without).losses, get_loss("slic")(scores).losses)


def test_beyond_the_gap_only_the_nll_is_left() -> None:
    loss = get_loss("slic", delta=1.0, lam=0.1)
    scores = from_ratios([0.0, 5.0], [0.0, 0.0])
    found = gradient(loss, scores)[..., 0]
    assert found.flatten().tolist() == pytest.approx([-1.1, 1.0, -0.1, 0.0])
    assert loss(scores).metrics["slic/active"].tolist() == [1, 0]


def test_a_gap_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="loss 'slic': delta must be greater than 0; got 0"):
        get_loss("slic", delta=0)
