from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import from_ratios, gradient, on_random_scores, value_of
from tests.losses.vectors import cases, check_case


@pytest.mark.parametrize("case", cases("sppo_hard"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("sppo_hard", **case["params"]), case)


@on_random_scores("sppo_hard")
def test_is_the_calibration_of_cal_dpo_alone(scores: Scores) -> None:
    whole = get_loss("cal_dpo", beta=0.2, calibration_weight=1)(scores)
    logistic = get_loss("dpo", beta=1.0)(scores).losses
    torch.testing.assert_close(value_of("sppo_hard", beta=0.2)(scores), whole.losses - logistic, rtol=1e-9, atol=1e-9)


def test_each_log_ratio_rests_at_its_own_target() -> None:
    loss = get_loss("sppo_hard", beta=0.25)  # targets +2 and -2 nats
    scores = from_ratios([2.0, 3.0, 1.0], [-2.0, -3.0, -1.0])
    assert loss(scores).losses.tolist() == [0, 2, 2]
    assert gradient(loss, scores)[..., 0].tolist() == [[0, 0], [2, -2], [-2, 2]]


def test_starts_at_half_the_inverse_square_of_beta() -> None:
    scores = make_scores(get_loss("sppo_hard"))
    start = dataclasses.replace(scores, policy=scores.reference)
    assert get_loss("sppo_hard", beta=0.1)(start).losses.tolist() == pytest.approx([50.0] * 5)
