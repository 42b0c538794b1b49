"""What two responses have in common as tokens: edit distance, common beginning, difference in length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefopt.errors import RunError

LONGEST = 2048
"""Tokens of a response that enter an edit distance: the cost is the product of both lengths."""


@dataclass(frozen=True)
class PairTokens:
    """Lengths and distances in tokens.

    `edit_distance` is Levenshtein's with unit costs, `normalized` the same divided by the longer length, 0 to 1.
    `first_difference` is the first place where the two differ, None for equal responses; where one is the beginning of
    the other, it is the shorter one's length. `length_gap` is chosen minus rejected. `capped` says that only the first
    tokens of a longer response entered the distance, so that it is that of two beginnings.
    """

    edit_distance: int
    normalized: float
    common_prefix: int
    first_difference: int | None
    length_gap: int
    capped: bool = False


def compare_tokens(chosen: Sequence[int], rejected: Sequence[int], *, longest: int = LONGEST) -> PairTokens:
    """Compare the token ids of two responses, without prompt and padding.

    Raises: `RunError` when rapidfuzz is not installed.
    """
    prefix = common_prefix(chosen, rejected)
    equal = prefix == len(chosen) == len(rejected)
    a, b = list(chosen[:longest]), list(rejected[:longest])
    distance = 0 if equal else _levenshtein(a, b)
    return PairTokens(
        edit_distance=distance,
        normalized=distance / max(len(a), len(b), 1),
        common_prefix=prefix,
        first_difference=None if equal else prefix,
        length_gap=len(chosen) - len(rejected),
        capped=not equal and max(len(chosen), len(rejected)) > longest,
    )


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens that both begin with."""
    shorter = min(len(a), len(b))
    return next((place for place in range(shorter) if a[place] != b[place]), shorter)


def _levenshtein(a: list[int], b: list[int]) -> int:
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError as error:
        raise RunError("edit distances need rapidfuzz: pip install 'prefopt-train[data]'.") from error
    return Levenshtein.distance(a, b)
