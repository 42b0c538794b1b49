from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import ConfigError, Scores, get_loss
from prefopt.testing import check_loss, make_scores
from tests.losses.drawn import from_ratios, gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import cases, check_case


@pytest.mark.parametrize("case", cases("refined_dpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("refined_dpo", **case["params"]), case)


def test_the_soft_label_form_keeps_the_contract() -> None:
    """But for the pull: a pair whose scores contradict its label is turned around by design."""
    with pytest.raises(AssertionError, match="pulls_the_right_way"):
        check_loss("refined_dpo", variant="soft_label")


@on_random_scores("refined_dpo")
def test_equals_dpo_when_gamma_is_zero(scores: Scores) -> None:
    same_values_and_gradients(value_of("refined_dpo", gamma=0), value_of("dpo"), scores)


@on_random_scores("refined_dpo")
def test_soft_label_equals_dpo_when_scores_leave_no_doubt(scores: Scores) -> None:
    sure = dataclasses.replace(scores, external=torch.tensor([1e6, 0.0]).expand_as(scores.external))
    same_values_and_gradients(value_of("refined_dpo", variant="soft_label"), value_of("dpo"), sure)


@on_random_scores("refined_dpo")
def test_soft_label_smooths_by_half_when_scores_are_equal(scores: Scores) -> None:
    undecided = dataclasses.replace(scores, external=torch.zeros_like(scores.external))
    half = value_of("dpo", label_smoothing=0.5)
    same_values_and_gradients(value_of("refined_dpo", variant="soft_label"), half, undecided)


def test_margin_pushes_harder_on_pairs_whose_scores_agree_with_the_label() -> None:
    scores = from_ratios([0.0] * 3, [0.0] * 3, external=torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]]))
    agree, equal, contradict = (-gradient(get_loss("refined_dpo"), scores)[:, 0, 0]).tolist()
    assert agree > equal > contradict > 0


def test_soft_label_turns_a_contradicted_pair_around() -> None:
    scores = from_ratios([0.0], [0.0], external=torch.tensor([[0.0, 2.0]]))
    assert gradient(get_loss("refined_dpo", variant="soft_label"), scores)[0, 0, 0] > 0


def test_scores_get_no_gradient() -> None:
    scores = make_scores(get_loss("refined_dpo"))
    external = scores.external.clone().requires_grad_()
    policy = scores.policy.clone().requires_grad_()
    for variant in ("margin", "soft_label"):
        out = get_loss("refined_dpo", variant=variant)(dataclasses.replace(scores, policy=policy, external=external))
        assert torch.autograd.grad(out.losses.sum(), external, allow_unused=True) == (None,)


def test_an_option_of_the_other_variant_is_refused() -> None:
    with pytest.raises(ConfigError, match="'refined_dpo': tau has no effect here: only `variant: soft_label` reads it"):
        get_loss("refined_dpo", tau=1.0)
    with pytest.raises(ConfigError, match="'refined_dpo': gamma has no effect here: only `variant: margin` reads it"):
        get_loss("refined_dpo", variant="soft_label", gamma=1.0)


def test_missing_scores_are_told() -> None:
    scores = dataclasses.replace(make_scores(get_loss("refined_dpo")), external=None)
    with pytest.raises(ConfigError, match="loss 'refined_dpo' needs external reward scores"):
        get_loss("refined_dpo")(scores)


def test_is_marked_experimental_where_people_look() -> None:
    spec = get_loss("refined_dpo").spec
    assert "could not be verified" in spec.source
    assert spec.summary.startswith("Experimental.")
