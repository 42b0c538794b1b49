from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import Scores, StepContext, get_loss
from prefopt.losses.kto import ReferencePoint, reference_point
from prefopt.testing import make_scores
from prefopt.testing._make import value_and_gradient
from tests.losses.vectors import PRECISIONS, cases, tensor


@pytest.mark.parametrize("case", cases("kto"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    inputs, loss = case["inputs"], get_loss("kto", **case["params"])
    for dtype, rtol, atol in PRECISIONS:
        scores = Scores.from_sums(
            tensor(inputs["policy_logps"], dtype).unsqueeze(-1),
            tensor(inputs["reference_logps"], dtype).unsqueeze(-1),
            labels=torch.tensor(inputs["labels"]),
            mismatched=tensor(inputs["kl_policy_logps"], dtype) - tensor(inputs["kl_reference_logps"], dtype),
        )
        out = loss(scores, StepContext())
        torch.testing.assert_close(out.losses, tensor(case["expected_loss"], dtype), rtol=rtol, atol=atol)
        assert out.state.kl.item() == pytest.approx(case["expected_aux"]["kl"], rel=1e-6)


def test_a_pair_of_labelled_responses_is_apo_zero_where_the_policy_has_not_drifted() -> None:
    pairs = make_scores(get_loss("dpo"))
    parts = []
    for side in (0, 1):
        pick = slice(side, side + 1)
        one = Scores.from_sums(
            pairs.sums[:, pick],
            pairs.reference_sums[:, pick],
            labels=torch.full((5,), side == 0),
            mismatched=torch.zeros(5).double(),
        )
        parts.append(get_loss("kto", beta=0.3)(one).losses)
    torch.testing.assert_close(parts[0] + parts[1], get_loss("apo_zero", beta=0.3)(pairs).losses)


def test_desirable_responses_are_pulled_up_and_undesirable_ones_pushed_down() -> None:
    loss = get_loss("kto")
    scores = dataclasses.replace(make_scores(loss), labels=torch.tensor([True, False, True, False, False]))
    for context in (None, StepContext()):
        _, gradient = value_and_gradient(loss, scores, context)
        assert gradient.sum((1, 2)).sign().tolist() == [-1, 1, -1, 1, 1]


def test_the_reference_point_is_clamped_after_the_mean_and_leaves_out_rows_without_a_partner() -> None:
    nan = float("nan")
    assert reference_point(torch.tensor([2.0, -1.0, nan])).item() == 0.5
    assert reference_point(torch.tensor([-2.0, 1.0])).item() == 0
    assert reference_point(torch.tensor([nan, nan])).item() == 0


def test_no_gradient_goes_through_the_reference_point() -> None:
    scores = make_scores(get_loss("kto"))
    mismatched = torch.ones(5, dtype=torch.float64, requires_grad=True)
    out = get_loss("kto")(dataclasses.replace(scores, mismatched=mismatched), StepContext())
    assert not out.losses.requires_grad


def test_in_evaluation_the_reference_point_is_the_last_of_training() -> None:
    scores = make_scores(get_loss("kto"))
    out = get_loss("kto")(scores, StepContext(state=ReferencePoint(torch.tensor(0.7)), training=False))
    assert out.metrics["kto/kl"].tolist() == pytest.approx([0.7] * 5)


def test_at_the_reference_every_row_is_worth_half_its_weight() -> None:
    scores = make_scores(get_loss("kto"))
    start = dataclasses.replace(
        scores,
        policy=scores.reference,
        mismatched=torch.zeros(5),
        labels=torch.tensor([True, False, True, True, False]),
    )
    out = get_loss("kto", desirable_weight=1.33)(start, StepContext())
    assert out.losses.tolist() == pytest.approx([0.665, 0.5, 0.665, 0.665, 0.5])
