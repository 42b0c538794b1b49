from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from prefopt import Scores, StepContext, get_loss
from prefopt.testing import make_scores
from tests.losses.vectors import cases, check_case, leaves


@pytest.mark.parametrize("case", cases("aot", paired=False), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("aot_unpaired", beta=case["params"]["beta"]), case, context=StepContext(), by_mean=True)


@pytest.mark.parametrize("case", cases("aot", paired=False), ids=lambda case: case["id"])
def test_the_gradient_is_that_of_the_sorted_form_written_out(case: dict[str, Any]) -> None:
    beta = case["params"]["beta"]
    leaves_of, scores = leaves(case["inputs"], torch.float64)
    ours = torch.autograd.grad(get_loss("aot_unpaired", beta=beta)(scores, StepContext()).losses.mean(), leaves_of)
    leaves_of, scores = leaves(case["inputs"], torch.float64)
    u, v = (side.sort().values for side in scores.logratios.unbind(-1))
    value = -F.logsigmoid(beta * (u - v))
    torch.testing.assert_close(value, torch.tensor(case["expected_loss"], dtype=torch.float64))
    for mine, theirs in zip(ours, torch.autograd.grad(value.mean(), leaves_of), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_equals_smoothed_dpo_for_a_batch_of_one_and_where_it_is_called_plainly() -> None:
    plain = get_loss("dpo", beta=0.01, label_smoothing=0.2)
    loss = get_loss("aot_unpaired", label_smoothing=0.2)
    one, many = make_scores(plain, prompts=1), make_scores(plain)
    torch.testing.assert_close(loss(one, StepContext()).losses, plain(one).losses)
    for context in (None, StepContext(training=False)):
        torch.testing.assert_close(loss(many, context).losses, plain(many).losses)


def test_shuffling_the_rejected_responses_changes_nothing() -> None:
    scores = make_scores(get_loss("dpo"))
    loss = get_loss("aot_unpaired", beta=1.0)
    shuffled = scores.logratios.clone()
    shuffled[:, 1] = shuffled[[3, 0, 4, 1, 2], 1]
    other = Scores.from_sums(shuffled, torch.zeros_like(shuffled))
    torch.testing.assert_close(loss(scores, StepContext()).losses.mean(), loss(other, StepContext()).losses.mean())
