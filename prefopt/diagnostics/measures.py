"""What is measured of a batch: a record of numbers per pair. Measures name what they read and know no file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from prefopt.diagnostics.branch import branch_place, branch_point
from prefopt.diagnostics.displacement import QUADRANTS, movement
from prefopt.diagnostics.items import Batch, Item, PairOf
from prefopt.diagnostics.pairs import compare_tokens
from prefopt.diagnostics.similarity import StateSums, similarity
from prefopt.diagnostics.states import StateReader, collated
from prefopt.scores import TokenStats
from prefopt.scoring.policy import Scorer

PairRecord = dict[str, Any]
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

    @torch.no_grad()
    def __call__(self, batch: Batch) -> list[PairRecord]:
        """Columns of movement for every pair, and of the branch point for those that have one."""
        device = next(self.policy.parameters()).device
        laid = collated([item.row() for item in batch], device)
        now, then = (self.scorer(model, laid, distributions=True) for model in (self.policy, self.start))
        pairs = [(b, pair) for b, item in enumerate(batch) for pair in item.pairs]
        records = _moved(now, then, laid["mask"], pairs)
        _add_branches(records, batch, pairs, laid["mask"], now, then)
        return records


def _moved(now: TokenStats, then: TokenStats, mask: Tensor, pairs: list[tuple[int, PairOf]]) -> list[PairRecord]:
    item = torch.tensor([b for b, _ in pairs], device=mask.device).unsqueeze(-1)
    places = torch.tensor([[pair.chosen, pair.rejected] for _, pair in pairs], device=mask.device)
    logps = [stats.logps.double()[item, places] for stats in (now, then)]  # [P, 2, T]
    scored = mask[item, places]
    moved = movement(logps[0], logps[1], scored)
    totals = [values.masked_fill(~scored, 0).sum(-1).tolist() for values in logps]
    quadrants, per_token = moved.quadrants.tolist(), (moved.chosen_per_token, moved.rejected_per_token)
    return [
        {
            "chosen_start": totals[1][k][0],
            "chosen_now": totals[0][k][0],
            "rejected_start": totals[1][k][1],
            "rejected_now": totals[0][k][1],
            "chosen_delta": float(moved.chosen[k]),
            "rejected_delta": float(moved.rejected[k]),
            "chosen_delta_per_token": float(per_token[0][k]),
            "rejected_delta_per_token": float(per_token[1][k]),
            "quadrant": QUADRANTS[quadrants[k]],
        }
        for k in range(len(pairs))
    ]


def _add_branches(
    records: list[PairRecord],
    batch: Batch,
    pairs: list[tuple[int, PairOf]],
    mask: Tensor,
    now: TokenStats,
    then: TokenStats,
) -> None:
    order = torch.full(mask.shape, -1, dtype=torch.long, device=mask.device)
    order[mask] = torch.arange(int(mask.sum()), device=mask.device)  # scored tokens as distributions number them
    known, where = [], []
    for k, (b, pair) in enumerate(pairs):
        place = branch_place(batch[b].responses[pair.chosen], batch[b].responses[pair.rejected])
        at = -1 if place is None else int(order[b, pair.chosen, place.position])
        if place is not None and at >= 0:  # a token that is not scored has no distribution
            known.append((k, place))
            where.append(at)
    if not known:
        return
    probabilities = [_probabilities(stats, torch.tensor(where, device=mask.device)) for stats in (now, then)]
    vocabulary = min(values.shape[-1] for values in probabilities)  # one may have more rows of padding
    probabilities = [values[:, :vocabulary] for values in probabilities]
    tokens = torch.tensor([[place.chosen, place.rejected] for _, place in known], device=mask.device)
    found = branch_point(probabilities[0], probabilities[1], tokens[:, 0], tokens[:, 1])
    for number, (k, place) in enumerate(known):
        records[k] |= {
            "branch_position": place.position,
            "branch_chosen": place.chosen,
            "branch_rejected": place.rejected,
            **{f"branch_{name}": column[number].item() for name, column in vars(found).items()},
        }


def _probabilities(stats: TokenStats, where: Tensor) -> Tensor:
    """Next-token probabilities `[k, V]` at some of the scored tokens, float32 or wider."""
    some = replace(stats.distributions, values=stats.distributions.values[where])
    probabilities: Tensor = some.logits(slice(None)).double().softmax(-1)
    return probabilities


def together(*measures: Measure) -> Measure:
    """Several measures as one: their columns side by side."""

    def measure(batch: Batch) -> list[PairRecord]:
        columns: list[list[Mapping[str, Any]]] = [list(one(batch)) for one in measures]
        return [{name: value for part in parts for name, value in part.items()} for parts in zip(*columns, strict=True)]

    return measure
