from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import from_ratios, gradient, on_random_scores, same_values_and_gradients
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry


@pytest.mark.parametrize("case", cases("hinge"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("hinge", **case["params"]), case)


def test_shared_batch_values_and_derivatives() -> None:
    check_registry(get_loss("hinge", beta=0.1), REGISTRY["registry/hinge"])


@on_random_scores("hinge")
def test_equals_slic_without_nll_under_a_reference_that_finds_all_responses_equally_likely(scores: Scores) -> None:
    flat = dataclasses.replace(scores, reference=torch.zeros_like(scores.policy))
    delta = 4.0
    same_values_and_gradients(
        lambda s: delta * get_loss("hinge", beta=1 / delta)(s).losses,
        lambda s: get_loss("slic", delta=delta, lam=0)(s).losses,
        flat,
    )


def test_pushing_ends_at_a_margin_of_one_over_beta() -> None:
    loss = get_loss("hinge", beta=0.5)
    scores = from_ratios([0.0, 1.0, 1.5, 9.0], [0.0, -0.5, -0.5, 0.0])  # margins 0, 1.5, 2 (the kink), 9
    assert gradient(loss, scores)[:, 0, 0].tolist() == [-0.5, -0.5, 0, 0]
    assert loss(scores).metrics["hinge/active"].tolist() == [1, 1, 0, 0]


def test_starts_at_one_with_twice_the_slope_of_dpo() -> None:
    scores = make_scores(get_loss("hinge"))
    start = dataclasses.replace(scores, policy=scores.reference)
    assert get_loss("hinge")(start).losses.tolist() == [1.0] * 5
    ours, dpo = (gradient(get_loss(name, beta=0.1), start) for name in ("hinge", "dpo"))
    torch.testing.assert_close(ours, 2 * dpo)
