from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import get_loss
from prefopt.testing import make_scores
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry


@pytest.mark.parametrize("case", cases("robust_dpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("robust_dpo", **case["params"]), case)


def test_shared_batch_values_and_derivatives() -> None:
    case = REGISTRY["registry/rdpo_robust"]
    check_registry(get_loss("robust_dpo", beta=case["inputs"]["beta"], epsilon=case["inputs"]["label_smoothing"]), case)


def test_equals_dpo_when_no_label_is_flipped() -> None:
    scores = make_scores(get_loss("dpo"))
    torch.testing.assert_close(get_loss("robust_dpo", epsilon=0)(scores).losses, get_loss("dpo")(scores).losses)


@pytest.mark.parametrize("epsilon", [0.1, 0.4])
def test_expectation_over_flips_is_dpo_on_the_clean_labels(epsilon: float) -> None:
    loss = get_loss("robust_dpo", epsilon=epsilon)
    clean = make_scores(get_loss("dpo"))
    flipped = dataclasses.replace(
        clean, policy=clean.policy.flip(1), reference=clean.reference.flip(1), mask=clean.mask.flip(1)
    )
    expected = (1 - epsilon) * loss(clean).losses + epsilon * loss(flipped).losses
    torch.testing.assert_close(expected, get_loss("dpo")(clean).losses)


def test_sign_is_opposite_to_label_smoothing() -> None:
    scores = make_scores(get_loss("dpo"))
    plain = get_loss("dpo")(scores).losses
    robust, smoothed = (
        get_loss("robust_dpo", epsilon=0.1)(scores).losses,
        get_loss("dpo", label_smoothing=0.1)(scores).losses,
    )
    torch.testing.assert_close((robust - plain) * (1 - 0.2), -(smoothed - plain))
