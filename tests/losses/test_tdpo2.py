from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry, leaves


@pytest.mark.parametrize("case", cases("tdpo", version=2), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss = get_loss("tdpo2", beta=case["params"]["beta"], alpha=case["params"]["alpha"])
    check_case(loss, case)
    out = loss(leaves(case["inputs"], torch.float64)[1])
    for side in ("chosen", "rejected"):
        kl = out.metrics[f"tdpo2/kl_{side}"].tolist()
        assert kl == pytest.approx(case["expected_aux"][f"{side}_position_kl"], rel=1e-9)


def test_shared_batch_values_and_derivatives() -> None:
    check_registry(get_loss("tdpo2", beta=0.1, alpha=0.5), REGISTRY["registry/tdpo2"])


@on_random_scores("tdpo2")
def test_equals_dpo_when_alpha_is_zero(scores: Scores) -> None:
    same_values_and_gradients(value_of("tdpo2", alpha=0), value_of("dpo"), scores)


@on_random_scores("tdpo2")
def test_equals_dpo_where_both_kls_are_zero(scores: Scores) -> None:
    none = dataclasses.replace(scores, kl=torch.zeros_like(scores.policy))
    same_values_and_gradients(value_of("tdpo2"), value_of("dpo"), none)


def test_the_chosen_kl_is_held_fixed_and_the_rejected_one_is_not() -> None:
    scores = make_scores(get_loss("tdpo2"))
    kl = scores.kl.clone().requires_grad_()
    (found,) = torch.autograd.grad(get_loss("tdpo2")(dataclasses.replace(scores, kl=kl)).losses.sum(), kl)
    assert not found[:, 0].any()
    assert (found[:, 1][scores.mask[:, 1]] > 0).all()


def test_from_full_distributions_value_agrees_with_tdpo1_and_gradient_does_not() -> None:
    """At alpha 1 only the stop-gradient tells the two apart, and only on the chosen side."""
    (case,) = cases("tdpo", beta=0.5)
    gradients = {}
    for name, options in (("tdpo1", {}), ("tdpo2", {"alpha": 1.0})):
        logits, scores = leaves(case["inputs"], torch.float64)
        losses = get_loss(name, beta=0.5, **options)(scores).losses
        gradients[name] = (losses, *torch.autograd.grad(losses.sum(), logits))
    (value, chosen, rejected), (other, chosen2, rejected2) = gradients.values()
    torch.testing.assert_close(value, other)
    torch.testing.assert_close(rejected, rejected2)
    assert not torch.allclose(chosen, chosen2)
