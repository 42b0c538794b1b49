from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prefopt import Gather, Scores, StepContext, get_loss
from prefopt.losses.dr_dpo import soft_min
from prefopt.testing import make_scores, simulate_ranks
from prefopt.train.ranks import RankGather
from tests.losses.vectors import PRECISIONS, REGISTRY, cases, check_case, leaves

TRAINING = StepContext()
CLOSE: dict[str, float] = {"rtol": 1e-9, "atol": 1e-12}


def tensor(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def options(case: dict[str, Any]) -> dict[str, Any]:
    return dict(case["params"])


ON_ONE_RANK = [case for case in cases("dr_dpo") if "rank_of_example" not in case["inputs"]]


@pytest.mark.parametrize("case", ON_ONE_RANK, ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss = get_loss("dr_dpo", **options(case))
    check_case(loss, case, context=TRAINING, by_mean=True)
    policy, scores = leaves(case["inputs"], torch.float64)
    out = loss(scores, TRAINING)
    torch.testing.assert_close(out.metrics["dr_dpo/pair_loss"], tensor(case["expected_loss"]), **CLOSE)
    weights = tensor(case["expected_aux"]["weights"])
    share = 1 / (len(weights) * weights.square().sum())
    torch.testing.assert_close(out.metrics["dr_dpo/effective_share"], share.expand_as(weights), **CLOSE)
    torch.testing.assert_close(out.metrics["dr_dpo/distrusted"], (len(weights) * weights < 0.5).double())
    pair = get_loss("dpo", beta=loss.params.beta, label_smoothing=loss.params.label_smoothing)  # type: ignore[attr-defined]
    slopes = torch.autograd.grad(pair(scores).losses, policy, weights, retain_graph=True)
    for found, wanted in zip(torch.autograd.grad(out.losses.mean(), policy), slopes, strict=True):
        torch.testing.assert_close(found, wanted, **CLOSE)


def test_local_scope_takes_each_rank_by_itself() -> None:
    (case,) = cases("dr_dpo", scope="local")
    loss = get_loss("dr_dpo", **options(case))
    _, scores = leaves(case["inputs"], torch.float64)
    sums = dataclasses.replace(scores, policy=scores.policy.detach())
    shares = simulate_ranks(loss, sums, (2, 2), TRAINING)
    values = torch.stack([share.losses.mean() for share, _ in shares])
    torch.testing.assert_close(values, tensor(case["expected_aux"]["rank_scalars"]), **CLOSE)
    torch.testing.assert_close(values.mean(), tensor(case["expected_scalar"]), **CLOSE)
    pair = torch.cat([share.metrics["dr_dpo/pair_loss"] for share, _ in shares])
    torch.testing.assert_close(pair, tensor(case["expected_loss"]), **CLOSE)
    slopes = torch.cat([slope for _, slope in shares]).squeeze(-1) / 4
    for number, side in enumerate(("chosen", "rejected")):
        torch.testing.assert_close(slopes[:, number], tensor(case["expected_grad"][f"policy_{side}_logps"]), **CLOSE)
    weights = tensor(case["expected_aux"]["weights"]).view(2, 2)
    for (share, _), own in zip(shares, weights, strict=True):
        effective = 1 / (2 * own.square().sum())
        torch.testing.assert_close(share.metrics["dr_dpo/effective_share"], effective.expand(2), **CLOSE)


def test_local_scope_leaves_fillers_out_and_bears_a_rank_without_rows() -> None:
    loss = get_loss("dr_dpo", scope="local", beta=1.0, beta_prime=0.1)
    scores = make_scores(loss, prompts=3)
    filled = StepContext(gather=RankGather(torch.tensor([1.0, 1.0, 0.0])))
    whole = dataclasses.replace(scores, **{n: getattr(scores, n)[:2] for n in ("policy", "reference", "mask", "ids")})
    alone = loss(whole, TRAINING).losses
    torch.testing.assert_close(loss(scores, filled).losses[:2], alone)
    for scope in ("local", "global"):
        (empty, _), (full, _) = simulate_ranks(get_loss("dr_dpo", scope=scope), scores, (0, 3), TRAINING)
        assert len(empty.losses) == 0
        assert torch.isfinite(full.losses).all()


BATCH = REGISTRY["batch/dr_dpo"]


def reduced(losses: torch.Tensor, sizes: int) -> torch.Tensor:
    """Groups of so many pairs, each by itself: losses whose mean is the mean of the groups' values."""
    return torch.cat([Gather().reduce(part, lambda all_: soft_min(all_, 1.0)) for part in losses.split(sizes)])


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_groups_of_every_size_have_the_values_and_weights_that_were_worked_out(size: int) -> None:
    for dtype, rtol, atol in PRECISIONS:
        losses = torch.tensor(BATCH["inputs"]["pair_losses"], dtype=dtype, requires_grad=True)
        expected = BATCH["expected"]["by_group_size"][str(size)]
        value = reduced(losses, size).mean()
        close = {"rtol": rtol, "atol": atol}
        torch.testing.assert_close(value, torch.tensor(expected["value"], dtype=dtype), **close)
        (weights,) = torch.autograd.grad(value, losses)
        torch.testing.assert_close(weights, torch.tensor(expected["pair_weights"], dtype=dtype), **close)


def test_gradients_of_the_step_and_of_narrower_windows_are_those_worked_out() -> None:
    """Two ranks and two micro-batches of two pairs: the whole step, each rank's pairs, and ranks without windows."""
    expected, inputs = BATCH["expected"], BATCH["inputs"]
    for dtype, rtol, atol in PRECISIONS:
        move = torch.zeros((), dtype=dtype, requires_grad=True)  # a weight that each pair's loss leans on
        losses = torch.tensor(inputs["pair_losses"], dtype=dtype)
        losses = losses + torch.tensor(inputs["pair_gradients"], dtype=dtype) * move
        found = {
            "gradient_exact": reduced(losses, 8).mean(),
            "gradient_gathered_per_microbatch_of_4": reduced(losses, 4).mean(),
            "gradient_local_groups_of_2": reduced(losses, 2).mean(),
            "gradient_mean_loss": losses.mean(),
        }
        for name, value in found.items():
            (slope,) = torch.autograd.grad(value, move, retain_graph=True)
            torch.testing.assert_close(slope, torch.tensor(expected[name], dtype=dtype), rtol=rtol, atol=atol)
        torch.testing.assert_close(found["gradient_exact"].detach(), torch.tensor(expected["value"], dtype=dtype))
    (weights,) = torch.autograd.grad(soft_min(leaf := tensor(inputs["pair_losses"]).requires_grad_(), 1.0), leaf)
    torch.testing.assert_close(weights, tensor(expected["pair_weights"]), **CLOSE)


def test_ranks_of_unequal_size_merge_to_the_value_of_one() -> None:
    case = REGISTRY["batch/logsumexp_merge"]
    ranks = [tensor(part) for part in case["inputs"]["ranks"]]
    expected = case["expected"]
    found = [[(-part).max(), torch.exp(-part - (-part).max()).sum()] for part in ranks]
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), tensor(expected["max_and_sum"]), **CLOSE)
    whole = torch.cat(ranks)
    torch.testing.assert_close(torch.logsumexp(-whole, 0), tensor(expected["logsumexp"]), **CLOSE)
    torch.testing.assert_close(soft_min(whole, 1.0), tensor(expected["value"]), **CLOSE)


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
