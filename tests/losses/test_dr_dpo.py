from __future__ import annotations

import dataclasses
import functools
import operator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prefopt import Scores, StepContext, get_loss
from prefopt.losses.dr_dpo import soft_min
from prefopt.testing import make_scores, simulate_ranks
from tests.losses.vectors import REGISTRY, cases, check_case, leaves

TRAINING = StepContext()


def options(case: dict[str, Any]) -> dict[str, Any]:
    return dict(case["params"])


ON_ONE_RANK = [case for case in cases("dr_dpo") if "rank_of_example" not in case["inputs"]]


@pytest.mark.parametrize("case", ON_ONE_RANK, ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss = get_loss("dr_dpo", **options(case))
    check_case(loss, case, context=TRAINING, by_mean=True)
    _, scores = leaves(case["inputs"], torch.float64)
    out = loss(scores, TRAINING)
    torch.testing.assert_close(
        out.metrics["dr_dpo/pair_loss"], torch.tensor(case["expected_loss"], dtype=torch.float64)
    )
    weights = torch.tensor(case["expected_aux"]["weights"], dtype=torch.float64)
    torch.testing.assert_close(out.metrics["dr_dpo/weight"] / len(weights), weights)


def test_local_scope_takes_each_rank_by_itself() -> None:
    (case,) = cases("dr_dpo", scope="local")
    loss = get_loss("dr_dpo", **options(case))
    _, scores = leaves(case["inputs"], torch.float64)
    shares = simulate_ranks(loss, dataclasses.replace(scores, policy=scores.policy.detach()), (2, 2), TRAINING)
    values = torch.stack([share.losses.mean() for share, _ in shares])
    torch.testing.assert_close(values, torch.tensor(case["expected_aux"]["rank_scalars"], dtype=torch.float64))
    torch.testing.assert_close(values.mean(), torch.tensor(case["expected_scalar"], dtype=torch.float64))


def test_windows_of_every_size_have_the_values_that_were_worked_out() -> None:
    case = REGISTRY["batch/dr_dpo"]
    losses = torch.tensor(case["inputs"]["pair_losses"], dtype=torch.float64)
    for size, expected in case["expected"]["by_group_size"].items():
        value = torch.stack([soft_min(group, 1.0) for group in losses.split(int(size))]).mean()
        torch.testing.assert_close(value, torch.tensor(expected["value"], dtype=torch.float64))


def test_the_gradient_on_two_ranks_with_two_micro_batches_is_the_one_worked_out() -> None:
    case = REGISTRY["batch/dr_dpo"]
    losses = torch.tensor(case["inputs"]["pair_losses"], dtype=torch.float64, requires_grad=True)
    (weights,) = torch.autograd.grad(soft_min(losses, case["inputs"]["beta_prime"]), losses)
    torch.testing.assert_close(weights, torch.tensor(case["expected"]["pair_weights"], dtype=torch.float64))


def test_ranks_of_unequal_size_merge_to_the_value_of_one() -> None:
    case = REGISTRY["batch/logsumexp_merge"]
    losses = torch.tensor(functools.reduce(operator.iadd, case["inputs"]["ranks"], []), dtype=torch.float64)
    torch.testing.assert_close(soft_min(losses, 1.0), torch.tensor(case["expected"]["value"], dtype=torch.float64))


@given(st.integers(0, 1000), st.sampled_from([1e4, 1e6]))
def test_equals_the_mean_of_dpo_for_large_beta_prime(seed: int, beta_prime: float) -> None:
    scores = make_scores(get_loss("dpo"), seed=seed)
    found = get_loss("dr_dpo", beta_prime=beta_prime)(scores, TRAINING).losses.mean()
    torch.testing.assert_close(found, get_loss("dpo")(scores).losses.mean(), rtol=10 / beta_prime, atol=0)


def test_equals_dpo_for_a_batch_of_one() -> None:
    scores = make_scores(get_loss("dpo"), prompts=1)
    for beta_prime in (1e-3, 1.0, 1e3):
        found = get_loss("dr_dpo", beta_prime=beta_prime)(scores, TRAINING)
        torch.testing.assert_close(found.losses, get_loss("dpo")(scores).losses)


def test_plainly_and_in_evaluation_it_is_the_pair_loss() -> None:
    scores = make_scores(get_loss("dpo"))
    expected = get_loss("dpo", label_smoothing=0.1)(scores).losses
    loss = get_loss("dr_dpo", label_smoothing=0.1)
    torch.testing.assert_close(loss(scores).losses, expected)
    torch.testing.assert_close(loss(scores, StepContext(training=False)).losses, expected)


def test_a_flipped_pair_loses_its_say() -> None:
    policy = torch.tensor([[0.0, -40.0], [0.0, -40.0], [-40.0, 0.0]], dtype=torch.float64, requires_grad=True)
    scores = Scores.from_sums(policy, torch.zeros(3, 2, dtype=torch.float64))
    get_loss("dr_dpo", beta=0.1, beta_prime=0.5)(scores, TRAINING).losses.mean().backward()
    plain = policy.detach().clone().requires_grad_()
    get_loss("dpo")(Scores.from_sums(plain, scores.reference_sums)).losses.mean().backward()
    assert policy.grad is not None
    assert plain.grad is not None
    assert policy.grad[2].abs().max() < 0.01 * plain.grad[2].abs().max()


@pytest.mark.parametrize("temperature", [1e-4, 1e-2, 1.0, 1e8])
def test_soft_min_lies_between_minimum_and_mean_at_any_temperature(temperature: float) -> None:
    losses = torch.tensor([0.1, 0.5, 200.0, 210.0])
    value = soft_min(losses, temperature)
    assert losses.min() <= value <= losses.mean() + 1e-4
