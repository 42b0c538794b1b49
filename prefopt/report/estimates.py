"""Shares and means over pairs, with intervals that know that pairs of one prompt belong together."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Groups = NDArray[np.int64]

_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Estimate:
    """A number over `count` pairs and its 95 % interval; without one (`low` is None) where a single prompt tells it.

    The interval is about other prompts of the same kind. It says nothing of another seed of training.
    """

    value: float
    low: float | None
    high: float | None
    count: int


def mean(values: Reals, groups: Groups) -> Estimate:
    """Mean of `[N]` values, nats or whatever they are in; `groups` `[N]` numbers the prompt of each.

    Interval: normal, with the standard error that is robust to clusters. Raises: `ValueError` without values.
    """
    _require(values)
    center, variance = float(values.mean()), _variance(values, groups)
    if variance is None:
        return Estimate(center, None, None, len(values))
    reach = _Z * float(np.sqrt(variance))
    return Estimate(center, center - reach, center + reach, len(values))


def share(holds: NDArray[np.bool_], groups: Groups) -> Estimate:
    """Share of pairs for which something holds; `groups` as in `mean`.

    Interval: Wilson's, for as many independent pairs as would give the same standard error; where all pairs agree, for
    as many as there are prompts. Raises: `ValueError` without pairs.
    """
    values = holds.astype(np.float64)
    _require(values)
    p, variance = float(values.mean()), _variance(values, groups)
    if variance is None:
        return Estimate(p, None, None, len(values))
    independent = p * (1 - p) / variance if variance > 0 else len(np.unique(groups))
    low, high = _wilson(p, independent)
    return Estimate(p, low, high, len(values))


def _require(values: Reals) -> None:
    if not len(values):
        raise ValueError("there is no pair to take a mean over")


def _variance(values: Reals, groups: Groups) -> float | None:
    """Of the mean, from the sums of deviations per prompt; None when there is one prompt only."""
    _, number = np.unique(groups, return_inverse=True)
    sums = np.bincount(number, weights=values - values.mean())
    if len(sums) < 2:
        return None
    return float(np.square(sums).sum() / len(values) ** 2 * len(sums) / (len(sums) - 1))


def _wilson(p: float, n: float) -> tuple[float, float]:
    scale = 1 + _Z**2 / n
    center = (p + _Z**2 / (2 * n)) / scale
    reach = _Z * float(np.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))) / scale
    return max(0.0, min(p, center - reach)), min(1.0, max(p, center + reach))  # rounding may pass p at 0 and 1
