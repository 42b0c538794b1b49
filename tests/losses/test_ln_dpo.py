from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import ONE_TOKEN, on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry


@pytest.mark.parametrize("case", cases("ln_dpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("ln_dpo", **case["params"]), case)


def test_shared_batch_values_and_derivatives() -> None:
    check_registry(get_loss("ln_dpo", beta=0.1), REGISTRY["registry/ln_dpo"])


@on_random_scores("ln_dpo", tokens=ONE_TOKEN)
def test_equals_dpo_on_one_token_responses(scores: Scores) -> None:
    same_values_and_gradients(value_of("ln_dpo", beta=0.3), value_of("dpo", beta=0.3), scores)


@on_random_scores("ln_dpo")
def test_takes_the_logistic_of_the_gap_that_ipo_squares(scores: Scores) -> None:
    gap = get_loss("ln_dpo")(scores).metrics["ln_dpo/gap"]
    torch.testing.assert_close((gap - 1 / (2 * 0.3)) ** 2, get_loss("ipo", tau=0.3)(scores).losses)


def test_repeating_every_token_changes_nothing() -> None:
    loss = get_loss("ln_dpo")
    scores = make_scores(loss)
    twice = {name: getattr(scores, name).repeat(1, 1, 2) for name in ("policy", "reference", "mask")}
    torch.testing.assert_close(loss(dataclasses.replace(scores, **twice)).losses, loss(scores).losses)


def test_starts_at_log_2_and_logs_the_rewards_of_dpo() -> None:
    scores = make_scores(get_loss("ln_dpo"))
    start = dataclasses.replace(scores, policy=scores.reference)
    assert get_loss("ln_dpo")(start).losses.tolist() == pytest.approx([math.log(2)] * 5)
    torch.testing.assert_close(get_loss("ln_dpo", beta=2.0)(scores).rewards, 2 * scores.logratios)
