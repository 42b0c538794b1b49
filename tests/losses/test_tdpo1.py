from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import ConfigError, Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry, leaves


@pytest.mark.parametrize("case", cases("tdpo", version=1), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("tdpo1", beta=case["params"]["beta"]), case)


def test_shared_batch_values_and_derivatives() -> None:
    check_registry(get_loss("tdpo1", beta=0.1), REGISTRY["registry/tdpo1"])


@on_random_scores("tdpo1")
def test_equals_dpo_where_both_responses_have_the_same_kl(scores: Scores) -> None:
    none = dataclasses.replace(scores, kl=torch.zeros_like(scores.policy))
    same_values_and_gradients(value_of("tdpo1", beta=0.2), value_of("dpo", beta=0.2), none)
    equal = dataclasses.replace(scores, kl=1.0 / scores.lengths.clamp(min=1).unsqueeze(-1).expand_as(scores.policy))
    same_values_and_gradients(value_of("tdpo1", beta=0.2), value_of("dpo", beta=0.2), equal)


@on_random_scores("tdpo1")
def test_has_the_value_of_tdpo2_at_alpha_1(scores: Scores) -> None:
    torch.testing.assert_close(get_loss("tdpo1")(scores).losses, get_loss("tdpo2", alpha=1)(scores).losses)


def test_the_gradient_reaches_both_kls() -> None:
    scores = make_scores(get_loss("tdpo1"))
    kl = scores.kl.clone().requires_grad_()
    (found,) = torch.autograd.grad(get_loss("tdpo1")(dataclasses.replace(scores, kl=kl)).losses.sum(), kl)
    assert (found[:, 0][scores.mask[:, 0]] < 0).all()
    assert (found[:, 1][scores.mask[:, 1]] > 0).all()
    assert not found[~scores.mask].any()


def test_from_full_distributions_the_gradient_is_that_of_both_kls() -> None:
    """Against a transcription that writes the logit as log(policy/reference) + KL for each response."""
    (case,) = cases("tdpo", beta=0.5)
    logits, scores = leaves(case["inputs"], torch.float64)
    found = torch.autograd.grad(get_loss("tdpo1", beta=0.5)(scores).losses.sum(), logits)
    again, scores = leaves(case["inputs"], torch.float64)
    value = (scores.logratios + scores.total(scores.kl))[:, 0] - (scores.logratios + scores.total(scores.kl))[:, 1]
    expected = torch.autograd.grad(torch.log1p(torch.exp(-0.5 * value)).sum(), again)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_its_own_rewards_are_metrics_and_the_logged_ones_stay_those_of_dpo() -> None:
    scores = make_scores(get_loss("tdpo1"))
    out = get_loss("tdpo1", beta=0.3)(scores)
    torch.testing.assert_close(out.rewards, 0.3 * scores.logratios)
    own = torch.stack([out.metrics["tdpo1/reward_chosen"], out.metrics["tdpo1/reward_rejected"]], -1)
    torch.testing.assert_close(own, 0.3 * (scores.logratios + scores.total(scores.kl)))


def test_summed_reference_values_do_not_suffice() -> None:
    scores = dataclasses.replace(make_scores(get_loss("tdpo1")), kl=None)
    with pytest.raises(ConfigError, match="loss 'tdpo1' needs the per-position KL between policy and reference"):
        get_loss("tdpo1")(scores)
