"""What is measured of a batch: a record of numbers per pair. Measures name what they read and know no file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from prefopt.diagnostics.items import Batch, Item, PairOf, PairRecord
from prefopt.diagnostics.pairs import compare_tokens
from prefopt.diagnostics.readings import moved, read_batch
from prefopt.diagnostics.similarity import StateSums, similarity
from prefopt.diagnostics.states import StateReader
from prefopt.scoring.policy import Scorer

Measure = Callable[[Batch], list[PairRecord]]
"""Records of a batch's pairs, item by item and in the order of each item's pairs."""

IDENTICAL, EMPTY, CAPPED = "identical", "empty", "capped"


def pair_facts(batch: Batch) -> list[PairRecord]:
    """What token ids alone say of each pair: lengths, distances, and what is unusual."""
    return [_facts(item, pair) for item in batch for pair in item.pairs]


def _facts(item: Item, pair: PairOf) -> PairRecord:
    chosen, rejected = item.responses[pair.chosen], item.responses[pair.rejected]
    tokens = compare_tokens(chosen, rejected)
    scored = [sum(item.masks[place]) for place in (pair.chosen, pair.rejected)]
    flags = [
        name
        for name, holds in (
            (IDENTICAL, pair.chosen == pair.rejected),
            (EMPTY, not all(scored)),
            (CAPPED, tokens.capped),
        )
        if holds
    ]
    return {
        "row": pair.row,
        "rejected_index": pair.rejected_index,
        "chosen_tokens": scored[0],
        "rejected_tokens": scored[1],
        "length_gap": scored[0] - scored[1],
        "edit_distance": tokens.normalized,
        "common_prefix": tokens.common_prefix,
        "flags": flags,
    }


@dataclass(frozen=True)
class Similarities:
    """Hidden-state similarity of each pair under the model that is about to be trained."""

    states: StateReader

    def __call__(self, batch: Batch) -> list[PairRecord]:
        """Columns ches, ln_ches, cosine, last_inner_product; None where a response has no scored token."""
        found: list[PairRecord] = []
        for item, sums in zip(batch, self.states(batch), strict=True):
            found += _similarities(sums, item)
        return found


def _similarities(sums: StateSums, item: Item) -> list[PairRecord]:
    values = similarity(sums[[pair.chosen for pair in item.pairs]], sums[[pair.rejected for pair in item.pairs]])
    columns = {
        "ches": values.ches,
        "ln_ches": values.ln_ches,
        "cosine": values.cosine,
        "last_inner_product": values.last_inner_product,
    }
    return [{name: _number(column[k]) for name, column in columns.items()} for k in range(len(item.pairs))]


def _number(value: Tensor) -> float | None:
    number = float(value)
    return None if math.isnan(number) else number


@dataclass(frozen=True)
class Movements:
    """What training did to each pair: movement of both responses, and where the mass went where they part."""

    policy: nn.Module
    start: nn.Module
    scorer: Scorer = field(default_factory=Scorer)

    def __call__(self, batch: Batch) -> list[PairRecord]:
        """Columns of movement for every pair, and of the branch point for those that have one."""
        then = read_batch(self.start, batch, self.scorer)
        now = read_batch(self.policy, batch, self.scorer, starts=then)
        return [record for parts in zip(batch, now, then, strict=True) for record in moved(*parts)]


def together(*measures: Measure) -> Measure:
    """Several measures as one: their columns side by side."""

    def measure(batch: Batch) -> list[PairRecord]:
        columns: list[list[Mapping[str, Any]]] = [list(one(batch)) for one in measures]
        return [{name: value for part in parts for name, value in part.items()} for parts in zip(*columns, strict=True)]

    return measure
