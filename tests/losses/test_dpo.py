from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from prefopt import get_loss
from prefopt.testing import make_scores
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry


@pytest.mark.parametrize("case", cases("dpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("dpo", **case["params"]), case)


def test_shared_batch_values_and_derivatives() -> None:
    check_registry(get_loss("dpo", beta=0.1), REGISTRY["registry/dpo"])
    check_registry(get_loss("dpo", beta=0.1, label_smoothing=0.1), REGISTRY["registry/cdpo"])


def test_equals_robust_dpo_without_smoothing() -> None:
    scores = make_scores(get_loss("dpo"))
    torch.testing.assert_close(get_loss("dpo")(scores).losses, get_loss("robust_dpo", epsilon=0)(scores).losses)


def test_starts_at_log_2_with_slope_half_beta() -> None:
    scores = make_scores(get_loss("dpo"))
    policy = scores.reference.clone().requires_grad_()
    losses = get_loss("dpo", beta=0.3)(dataclasses.replace(scores, policy=policy)).losses
    assert losses.tolist() == pytest.approx([math.log(2)] * len(losses))
    (gradient,) = torch.autograd.grad(losses.sum(), policy)
    assert gradient[:, 0, 0].tolist() == pytest.approx([-0.15] * len(losses))
    assert gradient[:, 1, 0].tolist() == pytest.approx([0.15] * len(losses))


def test_smoothing_gives_the_margin_a_finite_target() -> None:
    target = math.log((1 - 0.2) / 0.2)
    loss = get_loss("dpo", beta=1.0, label_smoothing=0.2)
    policy = torch.tensor([[[target], [0.0]]], dtype=torch.float64, requires_grad=True)
    scores = dataclasses.replace(
        make_scores(loss, prompts=1, tokens=1), policy=policy, reference=torch.zeros(1, 2, 1, dtype=torch.float64)
    )
    (gradient,) = torch.autograd.grad(loss(scores).losses.sum(), policy)
    assert gradient.abs().max() < 1e-12


def test_reference_free_reads_no_reference() -> None:
    loss = get_loss("dpo", reference_free=True)
    assert not loss.needs
    scores = dataclasses.replace(make_scores(get_loss("dpo")), reference=None)
    torch.testing.assert_close(loss(scores).rewards, 0.1 * scores.sums)


def test_moving_both_models_by_a_constant_changes_nothing() -> None:
    loss = get_loss("dpo")
    scores = make_scores(loss)
    shift = torch.tensor([3.0, -2.0], dtype=torch.float64).view(1, 2, 1)
    moved = dataclasses.replace(scores, policy=scores.policy + shift, reference=scores.reference + shift)
    torch.testing.assert_close(loss(moved).losses, loss(scores).losses)
