from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from prefopt import ConfigError, Scores, get_loss
from prefopt.testing import check_loss, make_scores
from tests.losses.drawn import from_ratios, gradient, on_random_scores, same_values_and_gradients, value_of


@on_random_scores("odpo")
def test_equals_dpo_when_alpha_is_zero(scores: Scores) -> None:
    same_values_and_gradients(value_of("odpo", alpha=0), value_of("dpo"), scores)
    same_values_and_gradients(value_of("odpo", alpha=0, offset="gap"), value_of("dpo"), scores)


@on_random_scores("odpo")
def test_the_plain_gap_is_the_margin_form_of_refined_dpo(scores: Scores) -> None:
    ours, theirs = value_of("odpo", alpha=0.7, offset="gap"), value_of("refined_dpo", gamma=0.7)
    same_values_and_gradients(ours, theirs, scores)


def test_the_plain_gap_keeps_the_contract() -> None:
    check_loss("odpo", offset="gap")


def test_by_hand() -> None:
    scores = from_ratios([0.5, -1.25], [-0.75, 1.0], external=torch.tensor([[3.0, 1.0], [1.0, 0.5]]))
    losses = get_loss("odpo", beta=0.1, alpha=0.5)(scores).losses
    logits = [0.125 - 0.5 * math.log(2), -0.225 - 0.5 * math.log(0.5)]
    assert losses.tolist() == pytest.approx([math.log1p(math.exp(-h)) for h in logits], rel=1e-12)


@pytest.mark.parametrize("offset", ["log", "gap"])
def test_asks_for_more_margin_where_scores_lie_further_apart(offset: str) -> None:
    scores = from_ratios([0.0] * 3, [0.0] * 3, external=torch.tensor([[1.5, 0.0], [3.0, 0.0], [9.0, 0.0]]))
    out = get_loss("odpo", offset=offset)(scores)
    assert out.metrics["odpo/offset"].diff().gt(0).all()
    assert (-gradient(get_loss("odpo", offset=offset), scores)[:, 0, 0]).diff().gt(0).all()


def test_pairs_without_a_positive_gap_are_finite_and_nearly_left_out() -> None:
    scores = from_ratios([0.0, 0.0], [0.0, 0.0], external=torch.tensor([[1.0, 1.0], [0.0, 5.0]]))
    out = get_loss("odpo")(scores)
    assert out.metrics["odpo/offset"].tolist() == pytest.approx([math.log(1e-6)] * 2)
    assert gradient(get_loss("odpo"), scores).abs().max() < 1e-6


def test_scores_get_no_gradient() -> None:
    scores = make_scores(get_loss("odpo"))
    external = scores.external.clone().requires_grad_()
    out = get_loss("odpo")(dataclasses.replace(scores, policy=scores.policy.requires_grad_(), external=external))
    assert torch.autograd.grad(out.losses.sum(), external, allow_unused=True) == (None,)


def test_an_offset_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="loss 'odpo': offset must be one of 'log' or 'gap'; got 'sqrt'"):
        get_loss("odpo", offset="sqrt")
