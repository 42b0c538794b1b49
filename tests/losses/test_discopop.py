from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from prefopt import get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import from_ratios, gradient
from tests.losses.vectors import cases, check_case


@pytest.mark.parametrize("case", cases("discopop"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("discopop", **case["params"]), case)


def test_equals_dpo_for_pairs_far_on_the_wrong_side() -> None:
    scores = from_ratios([-40.0, -500.0], [0.0, 300.0])
    dpo = get_loss("dpo", beta=0.05)
    torch.testing.assert_close(get_loss("discopop")(scores).losses, dpo(scores).losses, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient(get_loss("discopop"), scores), gradient(dpo, scores), rtol=1e-12, atol=0)


def test_is_exponential_for_pairs_far_on_the_right_side() -> None:
    scores = from_ratios([40.0, 60.0], [0.0, 0.0])
    torch.testing.assert_close(get_loss("discopop")(scores).losses, torch.exp(-0.05 * scores.logratios[:, 0]))


def test_is_the_blend_that_the_paper_prints() -> None:
    scores = make_scores(get_loss("discopop"), scale=10)
    h = 0.05 * (scores.logratios[:, 0] - scores.logratios[:, 1])
    m = torch.sigmoid(h / 0.05)
    out = get_loss("discopop")(scores)
    torch.testing.assert_close(out.losses, (1 - m) * torch.log1p(torch.exp(-h)) + m * torch.exp(-h))
    torch.testing.assert_close(out.metrics["discopop/blend"], m)


def test_starts_between_logistic_and_exponential_loss() -> None:
    scores = make_scores(get_loss("discopop"))
    losses = get_loss("discopop")(dataclasses.replace(scores, policy=scores.reference)).losses
    assert losses.tolist() == pytest.approx([(1 + math.log(2)) / 2] * 5)


def test_small_tau_pulls_the_first_step_the_wrong_way_and_large_tau_does_not() -> None:
    start = from_ratios([0.0], [0.0])
    assert gradient(get_loss("discopop", tau=0.05), start)[0, 0, 0] > 0
    assert gradient(get_loss("discopop", tau=0.2), start)[0, 0, 0] < 0


@pytest.mark.parametrize("tau", [0.01, 0.05, 1.0, 5.0])
def test_finite_far_from_the_start_for_every_tau(tau: float) -> None:
    loss = get_loss("discopop", beta=1.0, tau=tau)
    scores = from_ratios([-1e4, 1e4], [1e4, -1e4], dtype=torch.float32)
    assert torch.isfinite(loss(scores).losses).all()
    assert torch.isfinite(gradient(loss, scores)).all()
