"""Splits by the margin of a reference model: log-probability of chosen minus that of rejected, in nats."""

from collections.abc import Sequence
from typing import Literal

Keep = Literal["signed_top", "abs_top"]


def margins(
    chosen: Sequence[float],
    rejected: Sequence[float],
    chosen_tokens: Sequence[float] | None = None,
    rejected_tokens: Sequence[float] | None = None,
) -> list[float]:
    """Differences of summed log-probabilities, or of means per token where both token counts are given."""
    if chosen_tokens is not None and rejected_tokens is not None:
        chosen = [value / count for value, count in zip(chosen, chosen_tokens, strict=True)]
        rejected = [value / count for value, count in zip(rejected, rejected_tokens, strict=True)]
    return [a - b for a, b in zip(chosen, rejected, strict=True)]


def noisy(gaps: Sequence[float], margin: float = 3.0, *, ordered: bool = False) -> list[bool]:
    """Which pairs the reference model cannot tell apart: |gap| of at most `margin` nats (arXiv:2505.05465).

    `ordered` asks as well that it prefers the chosen response, strictly, as the authors' code does.
    """
    return [abs(gap) <= margin and (not ordered or gap > 0) for gap in gaps]


def select(gaps: Sequence[float], fraction: float = 0.5, *, by: Keep = "abs_top") -> list[int]:
    """The places of the `fraction` of pairs with the largest gaps, in order; ties go to the earlier pair.

    Experimental: that clear pairs are worth more is published (arXiv:2501.15109), the exact statistic is not known to
    us. Raises: `ValueError` for a fraction outside of (0, 1].
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"the fraction must be above 0 and at most 1; got {fraction}.")
    ranked = sorted(range(len(gaps)), key=lambda place: -(abs(gaps[place]) if by == "abs_top" else gaps[place]))
    return sorted(ranked[: round(fraction * len(gaps))])


def band(gaps: Sequence[float], low: float, high: float) -> list[int]:
    """The places of pairs whose gap lies between two bounds, both included."""
    return [place for place, gap in enumerate(gaps) if low <= gap <= high]
