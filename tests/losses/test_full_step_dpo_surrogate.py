from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import gradient, on_random_scores
from tests.losses.token_vectors import PRECISIONS, token_cases


def group(inputs: dict[str, Any], dtype: torch.dtype) -> tuple[torch.Tensor, Scores]:
    """The case's responses as one prompt; a reward of 0 marks padding there. Every token is a step of its own."""
    policy = torch.tensor([inputs["policy_logps"]], dtype=dtype, requires_grad=True)
    rewards = torch.tensor([inputs["token_step_rewards"]], dtype=dtype)
    return policy, Scores(
        policy=policy,
        reference=torch.tensor([inputs["ref_logps"]], dtype=dtype),
        mask=rewards != 0,
        steps=torch.arange(rewards.shape[-1]).expand(rewards.shape).clone(),
        step_rewards=rewards,
        external=torch.tensor([inputs["outcome_rewards"]], dtype=dtype),
    )


@on_random_scores("full_step_dpo_surrogate")
def test_half_the_gradient_of_weighted_length_normalised_likelihood_at_rates_of_zero(scores: Scores) -> None:
    loss = get_loss("full_step_dpo_surrogate", beta=0.2, token_rate=0.0, reward_temp=0.0)
    policy = scores.policy.clone().requires_grad_()
    means = replace(scores, policy=policy).means
    values = 0.2 * scores.logratios
    total = torch.zeros((), dtype=torch.float64)
    for b in range(len(values)):
        pairs = [(i, j) for i in range(4) for j in range(4) if scores.external[b, i] > scores.external[b, j]]
        for i, j in pairs:
            weight = torch.sigmoid(values[b, j] - values[b, i]) / len(pairs)
            total = total - 0.5 * weight * (means[b, i] - means[b, j])
    (expected,) = torch.autograd.grad(total, policy)
    torch.testing.assert_close(gradient(loss, scores), expected)


@pytest.mark.parametrize("case", token_cases("full_step_dpo_surrogate"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss = get_loss("full_step_dpo_surrogate", **case["params"])
    for dtype, rtol, atol in PRECISIONS:
        policy, scores = group(case["inputs"], dtype)
        losses = loss(scores).losses
        torch.testing.assert_close(losses, torch.tensor(case["expected_loss"], dtype=dtype), rtol=rtol, atol=atol)
        (found,) = torch.autograd.grad(losses.mean(), policy)
        wanted = torch.tensor([case["expected_extra"]["grad_policy_logps"]], dtype=dtype)
        torch.testing.assert_close(found, wanted, rtol=rtol, atol=atol)


def test_the_place_of_a_response_in_the_group_does_not_matter() -> None:
    loss = get_loss("full_step_dpo_surrogate")
    scores = make_scores(loss)
    order = torch.tensor([2, 0, 3, 1])
    names = ("policy", "reference", "mask", "steps", "step_rewards", "external")
    turned = Scores(**{name: getattr(scores, name)[:, order] for name in names})
    torch.testing.assert_close(loss(turned).losses, loss(scores).losses)
    torch.testing.assert_close(loss(turned).rewards, loss(scores).rewards[:, order])


def test_a_group_without_a_better_and_a_worse_response_gives_zero() -> None:
    loss = get_loss("full_step_dpo_surrogate")
    scores = make_scores(loss)
    equal = replace(scores, external=torch.ones_like(scores.external))
    assert not loss(equal).losses.any()
    assert not gradient(loss, equal).any()


def test_a_missing_response_forms_no_pairs_whatever_its_reward() -> None:
    loss = get_loss("full_step_dpo_surrogate")
    scores = make_scores(loss)
    mask = scores.mask.clone()
    mask[:, 3] = False
    names = ("policy", "reference", "mask", "steps", "step_rewards", "external")
    three = Scores(**{name: getattr(scores, name)[:, :3] for name in names})
    for reward in (float("nan"), 100.0, -100.0):
        external = scores.external.clone()
        external[:, 3] = reward
        missing = replace(scores, mask=mask, external=external)
        torch.testing.assert_close(loss(missing).losses, loss(three).losses)


def test_better_responses_are_pulled_up_and_worse_ones_pushed_down() -> None:
    loss = get_loss("full_step_dpo_surrogate")
    scores = make_scores(loss)
    external = torch.tensor([1.0, 1.0, 0.0, 0.0]).double().expand(5, 4)
    found = gradient(loss, replace(scores, external=external))
    assert (found[:, :2][scores.mask[:, :2]] < 0).all()
    assert (found[:, 2:][scores.mask[:, 2:]] > 0).all()


def test_a_reward_of_zero_is_a_reward() -> None:
    loss = get_loss("full_step_dpo_surrogate")
    scores = make_scores(loss)
    zero = replace(scores, step_rewards=torch.zeros_like(scores.step_rewards))
    assert gradient(loss, zero)[scores.mask].all()
