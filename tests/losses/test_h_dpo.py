from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry, leaves


@pytest.mark.parametrize("case", cases("h_dpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss = get_loss("h_dpo", **case["params"])
    check_case(loss, case)
    logits = loss(leaves(case["inputs"], torch.float64)[1]).metrics["h_dpo/logit"]
    assert logits.tolist() == pytest.approx(case["expected_aux"]["logits"], rel=1e-9, abs=1e-12)


def test_shared_batch_values_and_derivatives() -> None:
    case = REGISTRY["registry/h_dpo"]
    check_registry(get_loss("h_dpo", **case["inputs"]), case)


@on_random_scores("h_dpo")
def test_equals_dpo_at_alpha_1(scores: Scores) -> None:
    same_values_and_gradients(value_of("h_dpo", beta=0.2, alpha=1.0), value_of("dpo", beta=0.2), scores)


def test_is_not_at_log_2_when_policy_is_reference() -> None:
    scores = make_scores(get_loss("h_dpo"))
    start = dataclasses.replace(scores, policy=scores.reference)
    a = start.sums
    expected = torch.log1p(torch.exp(-0.1 * (0.9 - 1) * (a[:, 0] - a[:, 1])))
    losses = get_loss("h_dpo", beta=0.1, alpha=0.9)(start).losses
    torch.testing.assert_close(losses, expected)
    assert not torch.allclose(losses, torch.full_like(losses, math.log(2)), atol=1e-3)


def test_tends_to_the_reference_free_loss_for_a_small_beta_at_fixed_alpha_beta() -> None:
    scores = make_scores(get_loss("h_dpo"))
    ours = get_loss("h_dpo", beta=1e-9, alpha=0.1 / 1e-9)(scores).losses
    torch.testing.assert_close(ours, get_loss("dpo", beta=0.1, reference_free=True)(scores).losses)


def test_alpha_scales_the_gradient_and_not_the_reference() -> None:
    """Another beta of DPO would scale the reference's part of the margin too."""
    loss, scores = get_loss("h_dpo", beta=0.1, alpha=1.2), make_scores(get_loss("h_dpo"))
    h = loss(scores).metrics["h_dpo/logit"]
    expected = -1.2 * 0.1 * torch.sigmoid(-h)
    torch.testing.assert_close(gradient(loss, scores)[:, 0, 0], expected)
    assert not torch.allclose(loss(scores).losses, get_loss("dpo", beta=0.12)(scores).losses)


def test_its_own_rewards_are_metrics_and_the_logged_ones_stay_those_of_dpo() -> None:
    scores = make_scores(get_loss("h_dpo"))
    out = get_loss("h_dpo", beta=0.1, alpha=0.9)(scores)
    torch.testing.assert_close(out.rewards, 0.1 * scores.logratios)
    own = torch.stack([out.metrics["h_dpo/reward_chosen"], out.metrics["h_dpo/reward_rejected"]], -1)
    torch.testing.assert_close(own, 0.09 * scores.sums - 0.1 * scores.reference_sums)
