"""Which step of one solution stands for which step of another."""

from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

MAX_CELLS = 40_000
"""Beyond this many comparisons the middle parts are matched by place; keeps hostile lists cheap."""

Pair = tuple[int | None, int | None]


def align(left: Sequence[str], right: Sequence[str], *, least: float = 0.4) -> list[Pair]:
    """Pairs of step numbers (from 1) in order; None stands for a step without a partner.

    The pairs keep the order of both lists and have the largest sum of similarities, where similarity is
    1 - edit distance / longer length and pairs below `least` are not made. Equal beginnings and ends are matched first.
    """
    front = first_difference(left, right) - 1
    back = 0
    while back < min(len(left), len(right)) - front and left[-1 - back] == right[-1 - back]:
        back += 1
    middle = _middle(left[front : len(left) - back], right[front : len(right) - back], least)
    pairs: list[Pair] = [(number, number) for number in range(1, front + 1)]
    pairs += [(i and i + front, j and j + front) for i, j in middle]
    pairs += [(len(left) - k, len(right) - k) for k in range(back - 1, -1, -1)]
    return pairs


def first_difference(left: Sequence[str], right: Sequence[str]) -> int:
    """The number of the first step that differs; one more than the shorter list has if none does."""
    for number, (a, b) in enumerate(zip(left, right, strict=False), start=1):
        if a != b:
            return number
    return min(len(left), len(right)) + 1


def _middle(left: Sequence[str], right: Sequence[str], least: float) -> list[Pair]:
    if not left or not right:
        return [(i + 1, None) for i in range(len(left))] + [(None, j + 1) for j in range(len(right))]
    if len(left) * len(right) > MAX_CELLS:
        shared = min(len(left), len(right))
        rest: list[Pair] = [(i + 1, None) for i in range(shared, len(left))]
        return [(i + 1, i + 1) for i in range(shared)] + rest + [(None, j + 1) for j in range(shared, len(right))]
    same = [[Levenshtein.normalized_similarity(a, b) for b in right] for a in left]
    best = [[0.0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in range(len(left) - 1, -1, -1):
        for j in range(len(right) - 1, -1, -1):
            together = same[i][j] + best[i + 1][j + 1] if same[i][j] >= least else 0.0
            best[i][j] = max(together, best[i + 1][j], best[i][j + 1])
    return _walk(same, best, least)


def _walk(same: list[list[float]], best: list[list[float]], least: float) -> list[Pair]:
    pairs: list[Pair] = []
    i = j = 0
    while i < len(same) or j < len(same[0]):
        inside = i < len(same) and j < len(same[0])
        if inside and same[i][j] >= least and best[i][j] == same[i][j] + best[i + 1][j + 1]:
            pairs.append((i + 1, j + 1))
            i, j = i + 1, j + 1
            continue
        if j == len(same[0]) or (i < len(same) and best[i][j] == best[i + 1][j]):
            pairs.append((i + 1, None))
            i += 1
        else:
            pairs.append((None, j + 1))
            j += 1
    return pairs
