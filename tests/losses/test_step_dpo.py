from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from prefopt import ConfigError, Need, Scores, get_loss
from prefopt.testing import PROPERTIES, make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.token_vectors import check_token_case, step_rewards_of, steps_of, token_cases

LABELLED = {"steps": steps_of, "step_rewards": step_rewards_of}


@on_random_scores("step_dpo")
def test_equals_dpo_on_step_pairs(scores: Scores) -> None:
    same_values_and_gradients(value_of("step_dpo", beta=0.2), value_of("dpo", beta=0.2), scores)


@on_random_scores("step_dpo", scope="first_error")
def test_equals_dpo_when_the_whole_response_is_one_step(scores: Scores) -> None:
    one = replace(scores, steps=torch.zeros_like(scores.steps), step_rewards=torch.zeros_like(scores.step_rewards))
    same_values_and_gradients(value_of("step_dpo", beta=0.2, scope="first_error"), value_of("dpo", beta=0.2), one)


@pytest.mark.parametrize("case", token_cases("step_dpo"), ids=lambda case: case["id"])
def test_worked_values_of_step_pairs(case: dict[str, Any]) -> None:
    check_token_case(get_loss("step_dpo", **case["params"]), case)


@pytest.mark.parametrize("case", token_cases("step_dpo"), ids=lambda case: case["id"])
def test_step_labels_in_full_responses_give_the_same_values_and_gradients(case: dict[str, Any]) -> None:
    loss = get_loss("step_dpo", scope="first_error", **case["params"])
    check_token_case(loss, case, whole=True, **LABELLED)


@pytest.mark.parametrize("case", token_cases("step_dpo_prefix_unmasked"), ids=lambda case: case["id"])
def test_a_shared_beginning_cancels_whether_it_is_masked_or_not(case: dict[str, Any]) -> None:
    plain = get_loss("dpo", **case["params"])
    before_the_tail = {"steps": steps_of, "step_rewards": step_rewards_of}
    check_token_case(get_loss("step_dpo", scope="first_error", **case["params"]), case, whole=True, **before_the_tail)
    check_token_case(plain, case)


def test_tokens_of_other_steps_receive_no_gradient() -> None:
    loss = get_loss("step_dpo", scope="first_error")
    scores = make_scores(loss, tokens=8)
    rewards = torch.ones_like(scores.step_rewards)
    rewards[:, 1, 1:] = 0  # step 1 is the first wrong one
    found = gradient(loss, replace(scores, step_rewards=rewards, mask=torch.ones_like(scores.mask)))
    assert found[..., 2:4].all()
    assert not found[..., :2].any()
    assert not found[..., 4:].any()


def test_the_first_wrong_step_is_sought_among_the_steps_that_have_tokens() -> None:
    loss = get_loss("step_dpo", scope="first_error")
    scores = make_scores(loss)
    rewards = (
        torch.where(torch.arange(scores.step_rewards.shape[-1]) < 2, 1.0, 0.0).double().expand_as(scores.step_rewards)
    )
    mask = scores.mask & (torch.arange(7) < 4)  # two steps of two tokens
    cut = replace(scores, mask=mask, step_rewards=rewards)
    torch.testing.assert_close(loss(cut).losses, get_loss("dpo", beta=0.4)(cut).losses)


def test_step_labels_are_needed_only_where_they_are_read() -> None:
    assert get_loss("step_dpo").needs == {Need.REFERENCE}
    loss = get_loss("step_dpo", scope="first_error")
    assert loss.needs == {Need.REFERENCE, Need.STEPS, Need.STEP_REWARDS}
    with pytest.raises(ConfigError, match="loss 'step_dpo' needs step rewards, and these scores have none"):
        loss(make_scores(get_loss("dpo")))


@pytest.mark.parametrize("title", PROPERTIES)
def test_the_labelled_form_keeps_the_contract(title: str) -> None:
    PROPERTIES[title](get_loss("step_dpo", scope="first_error"))


def test_junk_step_labels_in_padding_change_nothing() -> None:
    loss = get_loss("step_dpo", scope="first_error")
    scores = make_scores(loss)
    junk = replace(scores, steps=scores.steps.masked_fill(~scores.mask, 10**6))
    torch.testing.assert_close(loss(junk).losses, loss(scores).losses)
