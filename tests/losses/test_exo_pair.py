from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from prefopt import ConfigError, Scores, get_loss
from tests.losses.drawn import from_ratios, gradient, on_random_scores
from tests.losses.vectors import cases, check_case


@pytest.mark.parametrize("case", cases("exo_pair"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("exo_pair", **case["params"]), case)


@on_random_scores("exo_pair")
def test_is_the_kl_whose_other_direction_is_smoothed_dpo(scores: Scores) -> None:
    """KL(label || q) is the smoothed cross-entropy less the label's entropy; KL(q || label) is this loss."""
    eps, beta = 0.1, 0.1
    chosen, rejected = scores.logratios.unbind(-1)
    log_q = torch.nn.functional.logsigmoid(beta * torch.stack([chosen - rejected, rejected - chosen], -1))
    label = torch.tensor([1 - eps, eps], dtype=torch.float64)
    ours = (log_q.exp() * (log_q - label.log())).sum(-1)
    torch.testing.assert_close(get_loss("exo_pair", beta=beta, epsilon=eps)(scores).losses, ours)
    entropy = -(label * label.log()).sum()
    other = (label * (label.log() - log_q)).sum(-1)
    torch.testing.assert_close(get_loss("dpo", beta=beta, label_smoothing=eps)(scores).losses, other + entropy)


@on_random_scores("exo_pair")
def test_stays_between_zero_and_minus_log_epsilon(scores: Scores) -> None:
    losses = get_loss("exo_pair", epsilon=0.01)(scores).losses
    assert (losses >= -1e-12).all()
    assert (losses <= -math.log(0.01) + 1e-12).all()


def test_the_margin_has_a_finite_target() -> None:
    loss = get_loss("exo_pair", beta=0.5, epsilon=0.1)
    target = math.log(0.9 / 0.1) / 0.5
    scores = from_ratios([target - 1, target, target + 1], [0.0] * 3)
    below, at, beyond = gradient(loss, scores)[:, 0, 0].tolist()
    assert below < 0 < beyond
    assert at == pytest.approx(0, abs=1e-12)
    assert loss(scores).losses[1].item() == pytest.approx(0, abs=1e-12)


def test_starts_where_the_sheet_says() -> None:
    assert get_loss("exo_pair")(from_ratios([0.0], [0.0])).losses.item() == pytest.approx(2.761231, abs=5e-7)


@pytest.mark.parametrize("epsilon", [0.0, -0.1, 0.5, 0.7])
def test_an_epsilon_outside_zero_and_a_half_is_refused_not_replaced(epsilon: float) -> None:
    told = "greater than 0" if epsilon <= 0 else "less than 0.5"
    with pytest.raises(ConfigError, match=f"loss 'exo_pair': epsilon must be {told}; got {epsilon}"):
        get_loss("exo_pair", epsilon=epsilon)
