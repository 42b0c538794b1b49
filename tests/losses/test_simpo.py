from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import get_loss
from prefopt.testing import make_scores
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry


@pytest.mark.parametrize("case", cases("simpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("simpo", **case["params"]), case)


def test_shared_batch_values_and_derivatives() -> None:
    case = REGISTRY["registry/simpo"]
    beta, gamma = case["inputs"]["beta"], case["inputs"]["gamma"]
    check_registry(get_loss("simpo", beta=beta, gamma_beta_ratio=gamma / beta), case)


def test_equals_reference_free_dpo_on_one_token_responses_without_margin() -> None:
    scores = make_scores(get_loss("dpo"), tokens=1)
    ours = get_loss("simpo", beta=0.7, gamma_beta_ratio=0)(scores).losses
    torch.testing.assert_close(ours, get_loss("dpo", beta=0.7, reference_free=True)(scores).losses)


def test_does_not_see_the_reference() -> None:
    scores = make_scores(get_loss("dpo"))
    without = dataclasses.replace(scores, reference=None)
    torch.testing.assert_close(get_loss("simpo")(scores).losses, get_loss("simpo")(without).losses)


def test_repeating_every_token_changes_nothing() -> None:
    loss = get_loss("simpo")
    scores = make_scores(loss)
    twice = dataclasses.replace(scores, policy=scores.policy.repeat(1, 1, 2), mask=scores.mask.repeat(1, 1, 2))
    torch.testing.assert_close(loss(twice).losses, loss(scores).losses)
