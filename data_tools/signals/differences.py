"""What differs between two responses: masks over tokens and spans over characters (arXiv:2408.07471)."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

MAX_TOKENS = 2_000
"""Matching takes quadratic time: of longer texts, all between common beginning and common end counts as different."""

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Spans:
    """Character spans [start, end) that differ, on each side."""

    chosen: list[tuple[int, int]]
    rejected: list[tuple[int, int]]


def difference_masks(
    chosen: Sequence[object], rejected: Sequence[object], *, skip: Collection[object] = ()
) -> tuple[list[bool], list[bool]]:
    """True for the tokens of each side that an alignment by longest matching blocks replaces, deletes or inserts.

    Tokens in `skip`, such as stop words, are never marked. The matcher's heuristic that ignores frequent tokens is off.
    """
    blocks = _differing(chosen, rejected)
    masks = ([False] * len(chosen), [False] * len(rejected))
    for (a, b), (c, d) in blocks:
        masks[0][a:b] = [token not in skip for token in chosen[a:b]]
        masks[1][c:d] = [token not in skip for token in rejected[c:d]]
    return masks


def difference_spans(chosen: str, rejected: str) -> Spans:
    """The differing words and signs as character spans: the columns `diff_spans_chosen` and `diff_spans_rejected`."""
    words = [[(found[0], *found.span()) for found in _WORD.finditer(text)] for text in (chosen, rejected)]
    blocks = _differing(*([word for word, _, _ in side] for side in words))
    sides: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for block in blocks:
        for side, (begin, end), spans in zip(words, block, sides, strict=True):
            if begin < end:
                spans.append((side[begin][1], side[end - 1][2]))
    return Spans(*sides)


def _differing(a: Sequence[object], b: Sequence[object]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Blocks of a and b, in order, that do not match."""
    if max(len(a), len(b)) > MAX_TOKENS:
        return _middle(a, b)
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    return [((i, j), (k, m)) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal"]


def _middle(a: Sequence[object], b: Sequence[object]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """All between common beginning and common end, as one block."""
    begin, short = 0, min(len(a), len(b))
    while begin < short and a[begin] == b[begin]:
        begin += 1
    end = 0
    while end < short - begin and a[-1 - end] == b[-1 - end]:
        end += 1
    block = ((begin, len(a) - end), (begin, len(b) - end))
    return [block] if len(a) != len(b) or begin < len(a) else []
