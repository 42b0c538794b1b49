"""Scores are checked once, when they are built."""

from __future__ import annotations

import math

import pytest
import torch

from prefopt import DataError, Scores, get_loss
from prefopt.errors import ConfigError, NonFiniteError

MASK = torch.tensor([[[1, 1, 0], [1, 0, 0]]], dtype=torch.bool)
VALUES = torch.tensor([[[-1.0, -2.0, math.nan], [-3.0, math.inf, -math.inf]]])


def test_what_lies_outside_the_mask_does_not_count() -> None:
    scores = Scores(policy=VALUES, reference=torch.zeros_like(VALUES), mask=MASK)
    assert scores.sums.tolist() == [[-3.0, -3.0]]
    assert scores.lengths.tolist() == [[2, 1]]
    assert scores.means.tolist() == [[-1.5, -3.0]]


def test_lengths_come_from_the_mask_and_not_from_what_is_not_zero() -> None:
    scores = Scores(policy=torch.zeros(1, 2, 3), reference=torch.zeros(1, 2, 3), mask=MASK)
    assert scores.lengths.tolist() == [[2, 1]]
    assert torch.isfinite(get_loss("ipo")(scores).losses).all()


def test_a_number_that_is_none_is_refused_with_row_side_and_dtype() -> None:
    policy = torch.zeros(2, 2, 3)
    policy[1, 1, 0] = math.nan
    with pytest.raises(
        NonFiniteError, match=r"policy log-probabilities are not finite \(torch.float32\): row 7 rejected"
    ):
        Scores(policy=policy, mask=torch.ones(2, 2, 3, dtype=torch.bool), ids=torch.tensor([4, 7]))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"Scores.policy must be \[B, R, T\]; got \[2, 3\]"):
        Scores(policy=torch.zeros(2, 3), mask=torch.ones(2, 3))
    with pytest.raises(DataError, match=r"Scores.reference must have shape \[1, 2, 3\]"):
        Scores(policy=torch.zeros(1, 2, 3), reference=torch.zeros(1, 2, 4), mask=MASK)


def test_half_precision_is_computed_in_float32() -> None:
    """Case 19: near 2,500 nats bfloat16 steps by 16, and a margin of 12 would disappear."""
    policy = torch.tensor([[[-2521.0], [-2533.0]]])
    assert (policy.bfloat16()[0, 0] - policy.bfloat16()[0, 1]).item() == 0
    tokens = torch.full((1, 2, 1000), -2.5)
    tokens[0, 1, :12] -= 1
    scores = Scores(policy=tokens.bfloat16(), mask=torch.ones(1, 2, 1000, dtype=torch.bool))
    assert scores.sums.dtype == torch.float32
    assert (scores.sums[0, 0] - scores.sums[0, 1]).item() == pytest.approx(12)


def test_a_loss_says_what_is_missing() -> None:
    scores = Scores(policy=torch.zeros(1, 2, 3), mask=MASK)
    with pytest.raises(ConfigError, match="loss 'dpo' needs reference log-probabilities, and these scores have none"):
        get_loss("dpo")(scores)
    with pytest.raises(ConfigError, match="loss 'simpo' compares two responses per prompt; got 3"):
        get_loss("simpo")(Scores(policy=torch.zeros(1, 3, 3), mask=torch.ones(1, 3, 3)))


def test_scores_may_be_used_by_several_losses_one_after_the_other() -> None:
    policy = torch.zeros(1, 2, 3, requires_grad=True)
    scores = Scores(policy=policy, reference=torch.zeros(1, 2, 3), mask=MASK)
    for name in ("dpo", "ipo", "dpop"):
        get_loss(name)(scores).losses.sum().backward()
    assert policy.grad is not None


def test_values_per_step_are_sums_over_its_tokens() -> None:
    steps = torch.tensor([[[0, 0, 1], [0, -1, 1]]])
    scores = Scores(policy=torch.zeros(1, 2, 3), steps=steps, mask=torch.ones(1, 2, 3))
    values = torch.tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])
    assert scores.per_step(values, steps=2).tolist() == [[[3.0, 3.0], [4.0, 6.0]]]


def test_sums_without_lengths_are_no_means() -> None:
    sums = Scores.from_sums(torch.tensor([[-8.0, -9.0]]), torch.tensor([[-8.0, -9.0]]))
    for name in ("simpo", "ipo"):
        with pytest.raises(ConfigError, match="needs response lengths"):
            get_loss(name)(sums)
    with pytest.raises(DataError, match="at least 1 token"):
        Scores.from_sums(torch.zeros(1, 2), lengths=torch.tensor([[3, 0]]))


def test_a_log_ratio_needs_a_reference() -> None:
    with pytest.raises(DataError, match=r"declares Need\.REFERENCE"):
        _ = Scores(policy=torch.zeros(1, 2, 3), mask=MASK).logratios


def test_a_score_of_the_data_that_is_none_is_refused_unless_its_response_is_missing() -> None:
    values = torch.tensor([[1.0, 2.0], [float("nan"), 0.0]])
    with pytest.raises(DataError, match=r"Scores\.external is not finite: row 1 chosen"):
        Scores.from_sums(torch.zeros(2, 2), external=values)
    mask = torch.tensor([[[True], [True]], [[False], [True]]])
    Scores(torch.zeros(2, 2, 1), mask, external=values)


def test_a_divergence_that_is_none_is_refused_within_the_mask() -> None:
    kl = torch.zeros(1, 2, 3)
    kl[0, 1, 2] = float("inf")
    mask = torch.ones(1, 2, 3, dtype=torch.bool)
    with pytest.raises(NonFiniteError, match=r"kl is not finite \(torch.float32\): row 0 rejected"):
        Scores(torch.zeros(1, 2, 3), mask, kl=kl)
    mask[0, 1, 2] = False
    Scores(torch.zeros(1, 2, 3), mask, kl=kl)


def test_step_labels_in_padding_may_be_anything() -> None:
    mask = torch.tensor([[[True, True, False]]])
    scores = Scores(torch.zeros(1, 1, 3), mask, steps=torch.tensor([[[0, 1, 99]]]))
    assert scores.per_step(torch.tensor([[[1.0, 2.0, 4.0]]]), steps=2).tolist() == [[[1.0, 2.0]]]


@pytest.mark.parametrize(
    ("column", "what"),
    [
        ({"weights": torch.tensor([[[1.0, -1.0]]])}, "weights is not a finite number of at least 0: row 0 chosen"),
        ({"weights": torch.tensor([[[math.nan, 1.0]]])}, "weights is not a finite number of at least 0"),
        ({"token_scores": torch.tensor([[[0.5, 5.0]]])}, "token_scores is outside 0 to 1: row 0 chosen"),
        ({"deviation": torch.tensor([[math.nan]])}, "deviation is not a finite number of at least 0: row 0 chosen"),
        ({"labels": torch.tensor([1])}, "labels must be bool .*; got torch.int64"),
    ],
)
def test_columns_that_would_turn_a_loss_around_are_refused(column: dict[str, torch.Tensor], what: str) -> None:
    mask = torch.ones(1, 1, 2, dtype=torch.bool)
    with pytest.raises(DataError, match=rf"Scores\.{what}"):
        Scores(torch.zeros(1, 1, 2), mask, **column)
    Scores(torch.zeros(1, 1, 2), mask, token_scores=torch.full((1, 1, 2), math.nan))  # unscored, which is allowed


def test_a_reference_is_a_constant() -> None:
    reference = torch.zeros(1, 2, 3, requires_grad=True)
    policy = torch.zeros(1, 2, 3, requires_grad=True)
    scores = Scores(policy, torch.ones(1, 2, 3, dtype=torch.bool), reference=reference)
    get_loss("dpo")(scores).losses.sum().backward()
    assert policy.grad is not None
    assert reference.grad is None
