from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from prefopt import StepContext, get_loss
from prefopt.losses.bco_pair import RewardShift
from prefopt.testing import make_scores
from tests.losses.vectors import cases, check_case, leaves


@pytest.mark.parametrize("case", cases("bco_pair"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    before = case["inputs"]["state"]
    context = StepContext(state=RewardShift(torch.tensor(before["delta"], dtype=torch.float64), before["count"]))
    loss = get_loss("bco_pair", **case["params"])
    check_case(loss, case, context=context)
    state = loss(leaves(case["inputs"], torch.float64)[1], context).state
    assert state.delta.item() == pytest.approx(case["expected_aux"]["delta"], rel=1e-12)
    assert state.count == case["expected_aux"]["count"]


def test_at_a_threshold_of_zero_it_classifies_by_the_sign_of_the_reward() -> None:
    scores = make_scores(get_loss("dpo"))
    chosen, rejected = (0.01 * scores.logratios).unbind(-1)
    torch.testing.assert_close(get_loss("bco_pair")(scores).losses, -F.logsigmoid(chosen) - F.logsigmoid(-rejected))


def test_the_threshold_is_the_mean_of_all_steps_however_large_they_were() -> None:
    loss, state, means = get_loss("bco_pair", beta=1.0), None, []
    for step, prompts in enumerate((3, 5, 2)):
        scores = make_scores(loss, prompts=prompts, seed=step)
        state = loss(scores, StepContext(state=state)).state
        means.append(scores.logratios.mean())
    assert state.count == 3
    torch.testing.assert_close(state.delta, torch.stack(means).mean())


def test_in_evaluation_the_threshold_is_that_of_training() -> None:
    scores, state = make_scores(get_loss("dpo")), RewardShift(torch.tensor(0.3), 4)
    out = get_loss("bco_pair")(scores, StepContext(state=state, training=False))
    assert out.state is state
    assert out.metrics["bco/delta"].tolist() == pytest.approx([0.3] * 5)
