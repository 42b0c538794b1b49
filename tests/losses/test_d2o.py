from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.token_vectors import PRECISIONS, token_cases


def own_and_dispreferred(inputs: dict[str, Any], dtype: torch.dtype) -> Scores:
    """Own samples, then the dispreferred response, which the lowest reward marks."""

    def block(own: str, other: str) -> torch.Tensor:
        return torch.tensor([[*k, one] for k, one in zip(inputs[own], inputs[other], strict=True)], dtype=dtype)

    policy = block("policy_self_seq_logps", "policy_rejected_seq_logps")
    reference = block("ref_minus_self_seq_logps", "ref_plus_rejected_seq_logps")
    rewards = torch.ones_like(policy)
    rewards[:, -1] = 0
    return Scores.from_sums(policy, reference, external=rewards)


@on_random_scores("dpo")
def test_equals_dpo_for_one_own_sample(scores: Scores) -> None:
    marked = replace(scores, external=torch.tensor([1.0, 0.0]).double().expand(scores.policy.shape[:2]))
    same_values_and_gradients(value_of("d2o", alpha=0.2, beta=0.2), value_of("dpo", beta=0.2), marked)


@pytest.mark.parametrize("case", token_cases("d2o"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss = get_loss("d2o", **{name: case["params"][name] for name in ("alpha", "beta")})
    for dtype, rtol, atol in PRECISIONS:
        out = loss(own_and_dispreferred(case["inputs"], dtype))
        torch.testing.assert_close(out.losses, torch.tensor(case["expected_loss"], dtype=dtype), rtol=rtol, atol=atol)
        margin = torch.tensor(case["expected_extra"]["logits"], dtype=dtype)
        torch.testing.assert_close(out.metrics["d2o/margin"], margin, rtol=rtol, atol=atol)


def test_only_the_response_of_lowest_reward_is_pushed_down() -> None:
    loss = get_loss("d2o")
    scores = make_scores(loss)
    lowest = scores.external.argmin(-1)
    found = gradient(loss, scores).sum(-1)
    for b, place in enumerate(lowest.tolist()):
        assert [value > 0 for value in found[b].tolist()] == [r == place for r in range(4)]


def test_own_samples_share_one_pull() -> None:
    loss = get_loss("d2o", alpha=0.1, beta=0.1)
    scores = make_scores(loss)
    found = gradient(loss, scores)[..., 0]
    pushed = found.amax(-1)
    torch.testing.assert_close(found.sum(-1), torch.zeros(5).double())
    torch.testing.assert_close(found.amin(-1), -pushed / 3)


def test_the_last_of_several_lowest_rewards_marks_the_dispreferred_response() -> None:
    loss = get_loss("d2o")
    scores = make_scores(loss)
    found = gradient(loss, replace(scores, external=torch.zeros_like(scores.external)))[..., 0]
    assert (found[:, -1] > 0).all()
    assert (found[:, :-1] < 0).all()


@pytest.mark.parametrize("reward", [float("nan"), -5.0])
def test_a_missing_response_is_neither_an_own_sample_nor_dispreferred(reward: float) -> None:
    loss = get_loss("d2o")
    scores = make_scores(loss)
    mask, external = scores.mask.clone(), scores.external.clone()
    mask[:, 3], external[:, 3] = False, reward
    three = Scores(**{n: getattr(scores, n)[:, :3] for n in ("policy", "reference", "mask", "external")})
    torch.testing.assert_close(loss(replace(scores, mask=mask, external=external)).losses, loss(three).losses)
