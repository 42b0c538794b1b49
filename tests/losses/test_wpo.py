"""The weighting that composes with any pair loss."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import ConfigError, Need, Scores, get_loss, loss_names
from prefopt.losses import Loss, Modifier, loss_spec
from prefopt.testing import make_scores
from tests.losses.vectors import PRECISIONS, SIDES, cases, leaves, stacked, tensor

PAIR_LOSSES = [n for n in loss_names() if loss_spec(n).responses == "pair" and loss_spec(n).reweightable]


def weighed(case: dict[str, Any], dtype: torch.dtype) -> Scores:
    _, scores = leaves(case["inputs"], dtype)
    squares = [tensor(case["inputs"][f"policy_{side}_token_sumsq"], dtype) for side in SIDES]
    return Scores(scores.policy, scores.mask, scores.reference, sum_squares=stacked(squares, scores.mask.shape[-1]))


@pytest.mark.parametrize("case", cases("wpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    options = [{"name": "wpo", "clamp": case["params"]["clamp"]}]
    loss = get_loss("dpo", beta=case["params"]["beta"], modify=options)
    for dtype, rtol, atol in PRECISIONS:
        out = loss(weighed(case, dtype))
        torch.testing.assert_close(out.losses, tensor(case["expected_loss"], dtype), rtol=rtol, atol=atol)
        weights = tensor(case["expected_aux"]["weights"], dtype)
        torch.testing.assert_close(out.metrics["wpo/weight"], weights, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_it_multiplies_any_pair_loss_by_a_constant(name: str) -> None:
    loss = get_loss(name, modify=["wpo"])
    assert Need.SUM_SQUARES in loss.needs
    scores = make_scores(loss)
    policy = scores.policy.clone().requires_grad_()
    moved = dataclasses.replace(scores, policy=policy)
    out, plain = loss(moved), get_loss(name)(moved)
    weight = out.metrics["wpo/weight"]
    assert (weight < 1).any()
    torch.testing.assert_close(out.losses, weight * plain.losses)
    (gradient,) = torch.autograd.grad(out.losses.sum(), policy, retain_graph=True)
    (expected,) = torch.autograd.grad((weight * plain.losses).sum(), policy)
    torch.testing.assert_close(gradient, expected)


def test_a_loss_on_single_responses_has_no_pair_to_weigh() -> None:
    with pytest.raises(ConfigError, match="'wpo' does not go with loss 'nll': it does not compare a pair"):
        get_loss("nll", modify=["wpo"])


def test_the_record_of_a_loss_says_how_it_is_weighed() -> None:
    described = get_loss("dpo", modify=[{"name": "wpo", "clamp": False}]).describe()
    assert described["modify"] == [{"name": "wpo", "clamp": False}]
    assert get_loss(described.pop("name"), **described).describe() == {"name": "dpo", **described}


def test_a_weighting_is_a_constant_per_prompt_whatever_it_gives_back() -> None:
    loss = get_loss("dpo", modify=["wpo"])
    scores = make_scores(loss)
    policy = scores.policy.clone().requires_grad_()

    def leaning(scores: Scores, params: Any) -> torch.Tensor:
        return scores.sums[:, 0].exp()

    def too_wide(scores: Scores, params: Any) -> torch.Tensor:
        return scores.sums[:, :1].exp()

    (own,) = loss.modifiers
    out = with_function(loss, own, leaning)(dataclasses.replace(scores, policy=policy))
    assert not out.metrics["wpo/weight"].requires_grad
    with pytest.raises(ConfigError, match=r"gave weights of shape \[5, 1\] for losses of shape \[5\]"):
        with_function(loss, own, too_wide)(scores)


def with_function(loss: Loss, own: Modifier, function: Any) -> Loss:
    return dataclasses.replace(
        loss, modifiers=(dataclasses.replace(own, spec=dataclasses.replace(own.spec, function=function)),)
    )


def test_sums_cannot_say_how_typical_a_response_is() -> None:
    loss = get_loss("dpo", modify=["wpo"])
    sums = Scores.from_sums(
        torch.zeros(1, 2), torch.zeros(1, 2), lengths=torch.ones(1, 2), sum_squares=torch.ones(1, 2, 1)
    )
    with pytest.raises(ConfigError, match="needs per-token log-probabilities, not sums"):
        loss(sums)
