from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from prefopt import Need, Scores, get_loss
from prefopt.testing import PROPERTIES, make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.token_vectors import check_token_case, step_rewards_of, steps_of, token_cases


def mixed_rewards(inputs: dict[str, Any], dtype: torch.dtype) -> torch.Tensor:
    """A naive pair has no step that is wrong beside a right beginning: all of it counts."""
    found = step_rewards_of(inputs, dtype)
    naive = torch.tensor(inputs["first_scored_step"]) == 1
    return found.masked_fill(naive.view(-1, 1, 1), 1)


@on_random_scores("scdpo")
def test_equals_dpo_on_rows_with_the_shared_steps_in_the_prompt(scores: Scores) -> None:
    same_values_and_gradients(value_of("scdpo", beta=0.2), value_of("dpo", beta=0.2), scores)


@on_random_scores("scdpo", scope="suffix")
def test_equals_dpo_where_the_responses_share_every_token_before_the_error(scores: Scores) -> None:
    shared = (scores.steps < 1) & scores.mask.all(1, keepdim=True)
    policy = torch.where(shared, scores.policy[:, :1], scores.policy)
    reference = torch.where(shared, scores.reference[:, :1], scores.reference)
    rewards = torch.where(torch.arange(scores.step_rewards.shape[-1]) < 1, 1.0, 0.0).double()
    both = replace(
        scores,
        policy=policy,
        reference=reference,
        step_rewards=rewards.expand_as(scores.step_rewards),
        mask=scores.mask.all(1, keepdim=True).expand_as(scores.mask),
    )
    torch.testing.assert_close(
        get_loss("scdpo", beta=0.2, scope="suffix")(both).losses, get_loss("dpo", beta=0.2)(both).losses
    )


@pytest.mark.parametrize("case", token_cases("scdpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss = get_loss("scdpo", **case["params"])
    check_token_case(loss, case, whole=True, steps=steps_of, step_rewards=step_rewards_of)
    check_token_case(get_loss("scdpo", beta=case["params"]["beta"]), case)


@pytest.mark.parametrize("case", token_cases("scdpo_mixed"), ids=lambda case: case["id"])
def test_naive_and_controlled_pairs_stand_in_one_batch(case: dict[str, Any]) -> None:
    loss = get_loss("scdpo", scope="suffix", **case["params"])
    check_token_case(loss, case, whole=True, steps=steps_of, step_rewards=mixed_rewards)
    check_token_case(get_loss("scdpo", **case["params"]), case)


def test_what_follows_the_error_counts_the_end_token_included() -> None:
    loss = get_loss("scdpo", scope="suffix")
    scores = make_scores(loss, tokens=8)
    rewards = torch.ones_like(scores.step_rewards)
    rewards[:, 1, 1:] = 0
    steps = scores.steps.clone()
    steps[..., -1] = -1  # an end token lies in no step
    found = gradient(loss, replace(scores, step_rewards=rewards, steps=steps, mask=torch.ones_like(scores.mask)))
    assert found[..., 2:].all()
    assert not found[..., :2].any()


def test_step_labels_are_needed_only_where_they_are_read() -> None:
    assert get_loss("scdpo").needs == {Need.REFERENCE}
    assert get_loss("scdpo", scope="suffix").needs == {Need.REFERENCE, Need.STEPS, Need.STEP_REWARDS}


@pytest.mark.parametrize("title", PROPERTIES)
def test_the_labelled_form_keeps_the_contract(title: str) -> None:
    PROPERTIES[title](get_loss("scdpo", scope="suffix"))
