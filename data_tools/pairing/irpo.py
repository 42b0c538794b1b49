"""Pairs of right and wrong samples as in iterative reasoning preference optimization (arXiv:2404.19733)."""

import math
from collections.abc import Iterator, Sequence


def irpo_pairs(winners: Sequence[str], losers: Sequence[str], count: int) -> Iterator[tuple[str, str]]:
    """`count` pairs: both lists advance together, and each restarts at its own end.

    Lists of lengths a and b give only lcm(a, b) different pairs; behind that they repeat. None if a list is empty.
    """
    if winners and losers:
        for place in range(count):
            yield winners[place % len(winners)], losers[place % len(losers)]


def different_pairs(winners: Sequence[str], losers: Sequence[str]) -> int:
    """How many pairs there are before they repeat."""
    return math.lcm(len(winners), len(losers))
