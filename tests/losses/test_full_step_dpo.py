from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import PROPERTIES, make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.token_vectors import check_token_case, column, steps_of, token_cases

REWARDED = {"steps": steps_of, "step_rewards": column("{}_step_rewards")}


@on_random_scores("full_step_dpo")
def test_equals_dpo_at_gamma_zero(scores: Scores) -> None:
    same_values_and_gradients(value_of("full_step_dpo", beta=0.2, gamma=0.0), value_of("dpo", beta=0.2), scores)


@on_random_scores("full_step_dpo")
def test_equals_dpo_when_all_steps_have_one_reward(scores: Scores) -> None:
    even = replace(scores, step_rewards=torch.full_like(scores.step_rewards, 0.7))
    torch.testing.assert_close(
        get_loss("full_step_dpo", beta=0.2, gamma=3.0)(even).losses, get_loss("dpo", beta=0.2)(even).losses
    )


@pytest.mark.parametrize("case", token_cases("full_step_dpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_token_case(get_loss("full_step_dpo", **case["params"]), case, whole=True, **REWARDED)


@pytest.mark.parametrize("scale", ["num_steps", "none"])
def test_weights_of_the_steps_add_up_to_their_number_or_to_one(scale: str) -> None:
    loss = get_loss("full_step_dpo", beta=1.0, gamma=2.0, weight_scale=scale)
    scores = make_scores(loss, tokens=6)  # three steps of two tokens
    whole = replace(scores, mask=torch.ones_like(scores.mask), policy=scores.reference)  # dL/dz = -1/2
    weights = gradient(loss, whole).abs() * 2
    total = 3.0 if scale == "num_steps" else 1.0
    torch.testing.assert_close(weights[..., ::2].sum(-1), torch.full((5, 2), total).double())
    torch.testing.assert_close(weights[..., ::2], weights[..., 1::2])


def test_good_steps_of_the_chosen_and_bad_steps_of_the_rejected_count_most() -> None:
    loss = get_loss("full_step_dpo", gamma=2.0)
    scores = make_scores(loss, tokens=6)
    rewards = torch.tensor([0.9, 0.5, 0.1]).double().expand_as(scores.step_rewards)
    pull = gradient(loss, replace(scores, step_rewards=rewards, mask=torch.ones_like(scores.mask))).abs()[..., ::2]
    assert (pull[:, 0].diff() < 0).all()
    assert (pull[:, 1].diff() > 0).all()


def test_the_end_token_weighs_as_an_average_step() -> None:
    loss = get_loss("full_step_dpo", beta=1.0, gamma=2.0)
    scores = make_scores(loss, tokens=7)
    steps = scores.steps.clone()
    steps[..., -1] = -1
    whole = replace(scores, steps=steps, mask=torch.ones_like(scores.mask), policy=scores.reference)
    torch.testing.assert_close(gradient(loss, whole)[..., -1].abs() * 2, torch.ones(5, 2).double())


@pytest.mark.parametrize("junk", [float("nan"), float("inf"), -7.0])
def test_rewards_of_steps_without_tokens_are_not_read(junk: float) -> None:
    loss = get_loss("full_step_dpo")
    scores = make_scores(loss, tokens=6)
    wider = torch.nn.functional.pad(scores.step_rewards, (0, 2), value=junk)
    assert torch.equal(loss(replace(scores, step_rewards=wider)).losses, loss(scores).losses)


def test_a_response_without_steps_is_one_step() -> None:
    scores = make_scores(get_loss("full_step_dpo"))
    none = replace(scores, steps=torch.full_like(scores.steps, -1))
    torch.testing.assert_close(
        get_loss("full_step_dpo", beta=0.1, weight_scale="none")(none).losses, get_loss("dpo", beta=0.1)(none).losses
    )


@pytest.mark.parametrize("title", PROPERTIES)
def test_weights_that_add_up_to_one_keep_the_contract(title: str) -> None:
    PROPERTIES[title](get_loss("full_step_dpo", weight_scale="none"))
