from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from prefopt import ConfigError, get_loss
from prefopt.testing import check_loss, make_scores
from tests.losses.drawn import from_ratios, gradient
from tests.losses.vectors import cases, check_case, leaves


@pytest.mark.parametrize("case", cases("chi_po"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss = get_loss("chi_po", **case["params"])
    check_case(loss, case)
    logits = loss(leaves(case["inputs"], torch.float64)[1]).metrics["chi_po/logit"]
    assert logits.tolist() == pytest.approx(case["expected_aux"]["logits"], rel=1e-9)


def test_starts_as_dpo_with_twice_the_beta() -> None:
    scores = make_scores(get_loss("chi_po"))
    start = dataclasses.replace(scores, policy=scores.reference)
    ours, dpo = get_loss("chi_po", beta=0.1), get_loss("dpo", beta=0.2)
    assert ours(start).losses.tolist() == pytest.approx([math.log(2)] * 5)
    torch.testing.assert_close(gradient(ours, start), gradient(dpo, start))


def test_tends_to_dpo_far_below_the_reference() -> None:
    scores = from_ratios([-40.0, -60.0], [-50.0, -45.0])
    ours, dpo = get_loss("chi_po", beta=0.1), get_loss("dpo", beta=0.1)
    torch.testing.assert_close(ours(scores).losses, dpo(scores).losses)
    torch.testing.assert_close(gradient(ours, scores), gradient(dpo, scores))


def test_pulls_harder_on_responses_above_the_reference() -> None:
    """slope of phi: 1 + e^d."""
    loss = get_loss("chi_po", beta=1e-3)
    found = gradient(loss, from_ratios([-2.0, 0.0, 2.0], [0.0] * 3))[:, 0, 0] / (-1e-3)
    logits = loss(from_ratios([-2.0, 0.0, 2.0], [0.0] * 3)).metrics["chi_po/logit"]
    slopes = [1 + math.exp(d) for d in (-2.0, 0.0, 2.0)]
    assert (found / torch.sigmoid(-logits)).tolist() == pytest.approx(slopes)


def test_a_clipped_pair_has_no_gradient_even_when_it_is_wrong() -> None:
    loss = get_loss("chi_po", beta=0.1, r_max=0.1)
    scores = from_ratios([3.0, -3.0, 0.1], [-3.0, 3.0, 0.0])
    out = loss(scores)
    assert out.metrics["chi_po/logit"][:2].tolist() == [0.2, -0.2]
    assert out.metrics["chi_po/clipped"].tolist() == [1, 1, 0]
    found = gradient(loss, scores)[:, 0, 0]
    assert found[:2].tolist() == [0, 0]
    assert found[2] < 0


def test_without_clip_no_pair_is_counted_as_clipped() -> None:
    out = get_loss("chi_po")(from_ratios([1e4, -1e4], [-1e4, 1e4]))
    assert out.metrics["chi_po/clipped"].tolist() == [0, 0]


@pytest.mark.parametrize("clip", [None, 1.0])
def test_finite_at_log_ratios_whose_exponential_is_not(clip: float | None) -> None:
    loss = get_loss("chi_po", r_max=clip)
    scores = from_ratios([1e4, -1e4, 1e4], [1e4, 1e4, -1e4], dtype=torch.float32)
    assert torch.isfinite(loss(scores).losses).all()
    assert torch.isfinite(gradient(loss, scores)).all()


def test_the_clip_keeps_the_contract() -> None:
    check_loss("chi_po", r_max=2.0)


@pytest.mark.parametrize("largest", [1.0, 10.0])
def test_the_exponent_is_clamped_and_the_linear_term_is_not(largest: float) -> None:
    loss = get_loss("chi_po", beta=0.01, exp_clamp_max=largest)
    logits = loss(from_ratios([15.0, 25.0], [0.0, 0.0])).metrics["chi_po/logit"]
    assert logits.tolist() == pytest.approx([0.01 * (math.exp(largest) + d - 1) for d in (15, 25)])


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="r_max must be greater than 0; got 0"):
        get_loss("chi_po", r_max=0)
    with pytest.raises(ConfigError, match="exp_clamp_max must be at most 80"):
        get_loss("chi_po", exp_clamp_max=100)
