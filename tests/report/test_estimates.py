"""Intervals that know which pairs belong together."""

from __future__ import annotations

import numpy as np
import pytest

from prefopt.report.estimates import mean, share


def test_a_share_of_independent_pairs_has_wilsons_interval() -> None:
    holds, n = np.arange(101) < 10, 101
    found = share(holds, np.arange(n))
    p, z, independent = 10 / n, 1.959964, n - 1  # the standard error divides by n - 1
    scale = 1 + z**2 / independent
    center = (p + z**2 / (2 * independent)) / scale
    reach = z / scale * np.sqrt(p * (1 - p) / independent + z**2 / (4 * independent**2))
    assert (found.value, found.count) == (pytest.approx(p), n)
    assert (found.low, found.high) == (pytest.approx(center - reach), pytest.approx(center + reach))


def test_a_mean_of_independent_pairs_has_the_usual_interval() -> None:
    values = np.array([1.0, 2.0, 4.0, 8.0])
    found = mean(values, np.arange(4))
    reach = 1.959964 * values.std(ddof=1) / 2
    assert (found.low, found.high) == (pytest.approx(3.75 - reach), pytest.approx(3.75 + reach))


@pytest.mark.parametrize("copies", [2, 5])
def test_copies_of_pairs_under_the_same_prompt_make_nothing_surer(copies: int) -> None:
    values, groups = np.array([1.0, -2.0, 3.0, 0.5]), np.arange(4)
    one, many = mean(values, groups), mean(np.tile(values, copies), np.tile(groups, copies))
    assert (many.low, many.high) == (pytest.approx(one.low), pytest.approx(one.high))
    one, many = share(values > 0, groups), share(np.tile(values > 0, copies), np.tile(groups, copies))
    assert (many.low, many.high) == (pytest.approx(one.low), pytest.approx(one.high))


def test_where_all_pairs_agree_the_interval_is_that_of_the_prompts() -> None:
    few, many = (share(np.ones(60, dtype=bool), np.arange(60) // each) for each in (20, 2))
    assert few.value == many.value == few.high == many.high == 1
    assert few.low is not None
    assert many.low is not None
    assert few.low < many.low < 1


def test_one_prompt_alone_has_no_interval() -> None:
    for found in (mean(np.array([1.0, 2.0]), np.zeros(2, dtype=int)), share(np.array([True]), np.zeros(1, dtype=int))):
        assert found.low is found.high is None


def test_no_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="no pair"):
        mean(np.empty(0), np.empty(0, dtype=int))


def test_the_interval_covers_the_share_it_was_drawn_from() -> None:
    draw, covered = np.random.default_rng(0), 0
    for _ in range(400):
        prompts = draw.beta(1, 3, size=60)  # the mean of this is 1/4, and pairs of one prompt are alike
        found = share((draw.random((60, 3)) < prompts[:, None]).ravel(), np.repeat(np.arange(60), 3))
        covered += (found.low or 0) <= 0.25 <= (found.high or 1)
    assert 0.92 <= covered / 400 <= 0.98
