"""Pairs of right and wrong samples as in self-training with DPO (arXiv:2407.18248): those that share least first."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ranked:
    """A positive and a negative, by their places in the lists, and the similarity of their token sets."""

    similarity: float
    positive: int
    negative: int


def rank_pairs(positives: Sequence[str], negatives: Sequence[str]) -> list[Ranked]:
    """All pairs by ascending Jaccard similarity of their whitespace tokens, ties by place.

    Differs: the authors' code takes the tokens of a tokenizer.
    """
    left, right = ([frozenset(text.split()) for text in texts] for texts in (positives, negatives))
    pairs = [Ranked(_jaccard(a, b), i, j) for i, a in enumerate(left) for j, b in enumerate(right)]
    return sorted(pairs, key=lambda pair: (pair.similarity, pair.positive, pair.negative))


def without_similar(texts: Sequence[str], limit: float = 0.7) -> list[str]:
    """The texts in order, without those whose similarity to an earlier one that stays exceeds the limit."""
    kept: list[tuple[str, frozenset[str]]] = []
    for text in texts:
        found = frozenset(text.split())
        if all(_jaccard(found, other) <= limit for _, other in kept):
            kept.append((text, found))
    return [text for text, _ in kept]


def _jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b) if a or b else 1.0
