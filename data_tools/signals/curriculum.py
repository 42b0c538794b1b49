"""Curriculum stages: pairs that are easy to tell first (arXiv:2405.13637)."""

from collections.abc import Sequence
from typing import Literal


def thresholds(
    differences: Sequence[float], groups: int, *, spacing: Literal["even", "quantile"] = "even"
) -> list[float]:
    """`groups` descending thresholds from the largest to the smallest score difference.

    `even` spaces them evenly, as published; on skewed differences the first stages are then tiny, and `quantile`, which
    gives stages of equal growth, is the better choice.

    Raises: `ValueError` for fewer than two groups or no differences.
    """
    if groups < 2 or not differences:
        raise ValueError(f"a curriculum needs pairs and at least 2 groups; got {len(differences)} and {groups}.")
    ordered = sorted(differences, reverse=True)
    if spacing == "quantile":
        return [ordered[round(place * (len(ordered) - 1) / (groups - 1))] for place in range(groups)]
    high, low = ordered[0], ordered[-1]
    step = (high - low) / (groups - 1)
    return [high - place * step for place in range(groups - 1)] + [low]


def stages(
    differences: Sequence[float], groups: int, *, spacing: Literal["even", "quantile"] = "even"
) -> list[list[int]]:
    """The pairs of each of `groups` - 1 stages: stage s has all with a difference of at least threshold s + 1.

    Stages are cumulative, the last has every pair. Raises: `ValueError` as `thresholds` does.
    """
    limits = thresholds(differences, groups, spacing=spacing)[1:]
    return [[place for place, gap in enumerate(differences) if gap >= limit] for limit in limits]
