from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from prefopt import ConfigError, LossOutput, Scores, get_loss
from prefopt.losses._math import log1mexp
from prefopt.testing import make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry, leaves


@pytest.mark.parametrize("case", cases("orpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss = get_loss("orpo", lam=case["params"]["lambda"])
    check_case(loss, case)
    ratio = loss(leaves(case["inputs"], torch.float64)[1]).metrics["orpo/log_odds_ratio"]
    assert ratio.tolist() == pytest.approx(case["expected_aux"]["log_odds_ratio"], rel=1e-9)


def test_shared_batch_values_and_derivatives_of_the_odds_term() -> None:
    def odds_term(scores: Scores) -> LossOutput:
        whole, nll = get_loss("orpo", lam=1.0)(scores), get_loss("nll")(scores)
        return dataclasses.replace(whole, losses=whole.losses - nll.losses)

    check_registry(odds_term, REGISTRY["registry/orpo_odds_term"])


def probabilities(scores: Scores) -> Scores:
    """Odds are those of probabilities, and random numbers near the reference may lie above 1."""
    return dataclasses.replace(scores, policy=scores.policy.clamp(max=-0.01))


@on_random_scores("orpo")
def test_tends_to_nll_for_a_small_lam(scores: Scores) -> None:
    scores = probabilities(scores)
    same_values_and_gradients(value_of("orpo", lam=1e-12), value_of("nll"), scores)


@on_random_scores("orpo")
def test_the_second_term_is_the_log_odds_ratio_of_mean_probabilities(scores: Scores) -> None:
    scores = probabilities(scores)
    p = scores.means.exp()
    odds = p / (1 - p)
    expected = -scores.means[:, 0] + 0.3 * torch.log1p(odds[:, 1] / odds[:, 0])
    torch.testing.assert_close(get_loss("orpo", lam=0.3)(scores).losses, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log1mexp_keeps_its_digits_and_its_gradient_at_both_ends(dtype: torch.dtype) -> None:
    x = torch.tensor([-1e-30, -1e-9, -math.log(2), -1.0, -40.0, -1e4], dtype=dtype, requires_grad=True)
    values = log1mexp(x)
    expected = [math.log(1e-30), math.log(1e-9), math.log(0.5), math.log1p(-math.exp(-1)), -math.exp(-40), 0.0]
    assert values.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-45)
    (slope,) = torch.autograd.grad(values.sum(), x)
    assert slope.tolist() == pytest.approx([-1e30, -1e9, -1.0, -1 / math.expm1(1), -math.exp(-40), 0.0], rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_certain_and_empty_responses_are_finite(dtype: torch.dtype) -> None:
    """A mean log-probability of exactly 0 has infinite odds; so would a response without tokens."""
    policy = torch.tensor([[[0.0], [-2.0]], [[-2.0], [0.0]], [[0.0], [0.0]], [[-1.0], [-1.0]]], dtype=dtype)
    mask = torch.tensor([[[1], [1]], [[1], [1]], [[1], [1]], [[0], [1]]])
    scores = Scores(policy=policy, mask=mask)
    assert torch.isfinite(get_loss("orpo")(scores).losses).all()
    assert torch.isfinite(gradient(get_loss("orpo"), scores)).all()


def test_one_option_for_how_the_nll_is_averaged_and_no_other_value_of_it() -> None:
    assert get_loss("orpo", nll_norm="token") == get_loss("orpo", nll_norm="batch_tokens")
    with pytest.raises(ConfigError, match="nll_norm must be one of 'sequence' or 'batch_tokens'; got 'prompt'"):
        get_loss("orpo", nll_norm="prompt")


def test_raises_the_odds_of_the_chosen_response_over_those_of_the_rejected_one() -> None:
    scores = make_scores(get_loss("orpo"))
    step = scores.policy - 0.01 * gradient(get_loss("orpo", lam=1.0), scores)
    before, after = (
        get_loss("orpo")(dataclasses.replace(scores, policy=p)).metrics["orpo/log_odds_ratio"]
        for p in (scores.policy, step)
    )
    assert (after > before).all()
