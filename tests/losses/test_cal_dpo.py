from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import from_ratios, gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import cases, check_case


@pytest.mark.parametrize("case", cases("cal_dpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("cal_dpo", **case["params"]), case)


@on_random_scores("cal_dpo")
def test_equals_dpo_at_beta_1_without_calibration(scores: Scores) -> None:
    same_values_and_gradients(value_of("cal_dpo", calibration_weight=0), value_of("dpo", beta=1.0), scores)


@on_random_scores("cal_dpo")
def test_is_sppo_hard_plus_the_logistic_term(scores: Scores) -> None:
    sppo, dpo = value_of("sppo_hard", beta=0.1), value_of("dpo", beta=1.0)
    ours = value_of("cal_dpo", beta=0.1, calibration_weight=1)
    same_values_and_gradients(ours, lambda s: sppo(s) + dpo(s), scores)


def test_the_logistic_term_has_no_beta() -> None:
    scores = make_scores(get_loss("cal_dpo"))
    losses = [get_loss("cal_dpo", beta=beta, calibration_weight=0)(scores).losses for beta in (0.002, 0.5)]
    torch.testing.assert_close(*losses)


def test_a_chosen_response_that_falls_along_is_pulled_back() -> None:
    """A pair far apart, both of it below the reference: DPO is content, this loss is not."""
    scores = from_ratios([-20.0], [-80.0])
    ours, dpo = (gradient(get_loss(name, beta=0.1), scores)[0, 0, 0].item() for name in ("cal_dpo", "dpo"))
    assert ours < -20 < dpo < 0


def test_starts_at_log_2_plus_the_weighted_targets() -> None:
    scores = make_scores(get_loss("cal_dpo"))
    start = dataclasses.replace(scores, policy=scores.reference)
    losses = get_loss("cal_dpo", beta=0.1, calibration_weight=0.5)(start).losses
    assert losses.tolist() == pytest.approx([math.log(2) + 0.5 / (2 * 0.01)] * 5)
