from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from prefopt import Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import from_ratios, gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import cases, check_case


@pytest.mark.parametrize("case", cases("nca_pair"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("nca_pair", **case["params"]), case)


def dpo_against_the_reference(scores: Scores, side: int, *, wins: bool) -> Tensor:
    """DPO of one response and an opponent of log-ratio 0."""
    still = scores.reference[:, side]
    policy = torch.stack([scores.policy[:, side], still] if wins else [still, scores.policy[:, side]], 1)
    both = torch.stack([still, still], 1)
    mask = torch.stack([scores.mask[:, side]] * 2, 1)
    return value_of("dpo", beta=0.2)(Scores(policy=policy, reference=both, mask=mask))


@on_random_scores("nca_pair")
def test_each_term_is_dpo_against_an_opponent_at_the_reference(scores: Scores) -> None:
    def terms(s: Scores) -> Tensor:
        lost = dpo_against_the_reference(s, 0, wins=False) + dpo_against_the_reference(s, 1, wins=False)
        return dpo_against_the_reference(s, 0, wins=True) + 0.5 * lost

    same_values_and_gradients(value_of("nca_pair", beta=0.2), terms, scores)


def test_the_chosen_reward_has_a_finite_target_of_log_2() -> None:
    target = math.log(2) / 0.1
    found = gradient(get_loss("nca_pair", beta=0.1), from_ratios([target - 1, target, target + 1], [0.0] * 3))[:, 0, 0]
    assert found[0] < 0 < found[2]
    assert found[1].item() == pytest.approx(0, abs=1e-12)


def test_starts_at_2_log_2() -> None:
    scores = make_scores(get_loss("nca_pair"))
    losses = get_loss("nca_pair")(dataclasses.replace(scores, policy=scores.reference)).losses
    assert losses.tolist() == pytest.approx([2 * math.log(2)] * 5)
