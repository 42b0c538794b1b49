from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.token_vectors import check_token_case, column, token_cases
from tests.losses.vectors import REGISTRY, SIDES


@on_random_scores("token_weighted_dpo")
def test_equals_dpo_when_every_weight_is_one(scores: Scores) -> None:
    even = replace(scores, weights=torch.ones_like(scores.policy))
    same_values_and_gradients(value_of("token_weighted_dpo", beta=0.2), value_of("dpo", beta=0.2), even)


@pytest.mark.parametrize("case", token_cases("token_weighted_dpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss = get_loss("token_weighted_dpo", **case["params"])
    check_token_case(loss, case, whole=True, weights=column("{}_weights"))


@pytest.mark.parametrize("case", token_cases("dpo"), ids=lambda case: case["id"])
def test_weights_of_one_reproduce_the_worked_values_of_dpo(case: dict[str, Any]) -> None:
    check_token_case(get_loss("dpo", **case["params"]), case)
    ones = {"weights": lambda inputs, dtype: column("{}_mask")(inputs, dtype)}
    check_token_case(get_loss("token_weighted_dpo", **case["params"]), case, **ones)


def test_shared_batch_values() -> None:
    case, shared = REGISTRY["registry/token_weighted"], REGISTRY["registry/inputs"]["inputs"]
    loss = get_loss("token_weighted_dpo", beta=case["inputs"]["beta"])
    for row in range(3):
        tokens = [len(shared[f"policy_{side}_tokens"][row]) for side in SIDES]
        blocks = {
            "policy": [shared[f"policy_{side}_tokens"][row] for side in SIDES],
            "reference": [shared[f"ref_{side}_tokens"][row] for side in SIDES],
            "weights": [case["inputs"][f"weights_{side}"][row] for side in SIDES],
        }
        width = max(tokens)
        padded: dict[str, Any] = {
            name: torch.tensor([[side + [0.0] * (width - len(side)) for side in sides]], dtype=torch.float64)
            for name, sides in blocks.items()
        }
        out = loss(Scores(mask=torch.arange(width) < torch.tensor([tokens]).unsqueeze(-1), **padded))
        expected = case["expected"]
        assert out.losses.tolist() == pytest.approx([expected["loss"][row]], rel=1e-9)
        assert out.metrics["token_weighted_dpo/margin"].tolist() == pytest.approx([expected["margin"][row]], rel=1e-9)


def test_the_pull_on_a_token_is_in_proportion_to_its_weight() -> None:
    loss = get_loss("token_weighted_dpo")
    scores = make_scores(loss)
    pull = gradient(loss, scores).masked_fill(~scores.mask, 0)
    per_weight = (pull / scores.weights).masked_fill(~scores.mask, 0)
    size = per_weight.abs().amax((1, 2))
    torch.testing.assert_close(per_weight.abs()[scores.mask], size.view(-1, 1, 1).expand_as(pull)[scores.mask])


def test_no_gradient_flows_into_the_weights() -> None:
    loss = get_loss("token_weighted_dpo")
    scores = make_scores(loss)
    weights = scores.weights.clone().requires_grad_()
    policy = scores.policy.clone().requires_grad_()
    loss(replace(scores, weights=weights, policy=policy)).losses.sum().backward()
    assert weights.grad is None
    assert policy.grad.any()


def test_rewards_do_not_depend_on_the_weights() -> None:
    loss = get_loss("token_weighted_dpo", beta=0.3)
    scores = make_scores(loss)
    torch.testing.assert_close(loss(scores).rewards, 0.3 * scores.logratios)
