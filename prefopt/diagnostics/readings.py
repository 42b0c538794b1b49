"""What one model says of a prompt's responses, kept small, and what two such readings say of how it moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from prefopt.diagnostics.branch import BranchPlace, branch_place, branch_point
from prefopt.diagnostics.displacement import QUADRANTS, movement
from prefopt.diagnostics.greedy import greedy_track, track_of
from prefopt.diagnostics.items import Batch, Item, PairRecord
from prefopt.diagnostics.states import collated
from prefopt.scores import TokenStats
from prefopt.scoring.policy import Scorer

_CHUNK = 256
"""Tokens whose logits exist at one time where the likeliest one is looked for."""


@dataclass(frozen=True)
class Reading:
    """What a model says of one item, on the CPU. R responses, T tokens, K pairs that part at a scored token.

    `logps` float64 `[R, T]`: log-probabilities of the tokens, nats. `greedy` int64 and `greedy_logps` float32 `[R, T]`:
    the likeliest token at each place of a chosen response, and its log-probability. `held` float32 `[R, T]`: that of
    the token which was likeliest in an earlier reading, the same one without. `branches` float32 `[K, V]`: next-token
    probabilities where the pairs part. Places that are not scored hold 0.
    """

    logps: Tensor
    greedy: Tensor
    greedy_logps: Tensor
    held: Tensor
    branches: Tensor


def branches_of(item: Item) -> list[tuple[int, BranchPlace]]:
    """Which of the item's pairs part at a scored token, and where: at any other there is no distribution."""
    found = []
    for number, pair in enumerate(item.pairs):
        place = branch_place(item.responses[pair.chosen], item.responses[pair.rejected])
        if place is not None and item.masks[pair.chosen][place.position]:
            found.append((number, place))
    return found


@torch.no_grad()
def read_batch(
    model: nn.Module, batch: Batch, scorer: Scorer, *, starts: Sequence[Reading] | None = None
) -> list[Reading]:
    """Readings of a batch's items; `starts` are earlier ones of the same items, whose likeliest tokens are followed."""
    device = next(model.parameters()).device
    laid = collated([item.row() for item in batch], device)
    stats, mask = scorer(model, laid, distributions=True), laid["mask"]
    order = torch.full(mask.shape, -1, dtype=torch.long, device=mask.device)
    order[mask] = torch.arange(int(mask.sum()), device=mask.device)  # scored tokens as distributions number them
    greedy = torch.zeros_like(order)
    logps, held = (torch.zeros(mask.shape, device=mask.device) for _ in range(2))
    followed = mask & _chosen(batch, mask)
    before = _held_tokens(starts, mask)
    for places in followed.nonzero().split(_CHUNK):
        at = tuple(places.unbind(-1))
        logits = _logits(stats, order[at])
        track = greedy_track(logits)
        greedy[at], logps[at] = track.token, track.logp.float()
        held[at] = logps[at] if before is None else track_of(logits, before[at]).float()
    every = stats.logps.double().masked_fill(~mask, 0)
    parts = _split(batch, {"logps": every, "greedy": greedy, "greedy_logps": logps, "held": held})
    branches = [_branches(item, order[b], stats) for b, item in enumerate(batch)]
    return [Reading(**part, branches=found) for part, found in zip(parts, branches, strict=True)]


def _chosen(batch: Batch, mask: Tensor) -> Tensor:
    """Responses that are the chosen one of a pair, or stand alone, bool `[B, R, 1]`."""
    found = torch.zeros(mask.shape[:2], dtype=torch.bool, device=mask.device)
    for b, item in enumerate(batch):
        found[b, sorted({pair.chosen for pair in item.pairs}) or [0]] = True
    return found.unsqueeze(-1)


def _held_tokens(starts: Sequence[Reading] | None, mask: Tensor) -> Tensor | None:
    if starts is None:
        return None
    found = torch.zeros(mask.shape, dtype=torch.long)
    for b, start in enumerate(starts):
        found[b, : start.greedy.shape[0], : start.greedy.shape[1]] = start.greedy
    return found.to(mask.device)


def _split(batch: Batch, values: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Each item's own part of `[B, R, T]`, without what pads the batch."""
    near = {name: value.cpu() for name, value in values.items()}
    for b, item in enumerate(batch):
        responses, longest = len(item.responses), max(map(len, item.responses))
        yield {name: value[b, :responses, :longest].clone() for name, value in near.items()}


def _branches(item: Item, order: Tensor, stats: TokenStats) -> Tensor:
    where = [int(order[item.pairs[number].chosen, place.position]) for number, place in branches_of(item)]
    if not where:
        return torch.zeros(0, 0)
    return _logits(stats, torch.tensor(where, device=order.device)).double().softmax(-1).float().cpu()


def _logits(stats: TokenStats, where: Tensor) -> Tensor:
    """Logits `[k, V]` at some of the scored tokens, float32 or wider."""
    some = replace(stats.distributions, values=stats.distributions.values[where])
    found: Tensor = some.logits(slice(None))
    return found if found.dtype == torch.float64 else found.float()


def moved(item: Item, now: Reading, then: Reading) -> list[PairRecord]:
    """How each pair of an item moved from one reading to another, and where the mass went at its branch point."""
    if not item.pairs:
        return []
    places = torch.tensor([[pair.chosen, pair.rejected] for pair in item.pairs])
    scored = _mask(item)[places]  # [P, 2, T]
    found = movement(now.logps[places], then.logps[places], scored)
    sums = [reading.logps[places].sum(-1).tolist() for reading in (then, now)]
    quadrants, per_token = found.quadrants.tolist(), (found.chosen_per_token, found.rejected_per_token)
    records = [
        {
            "chosen_start": sums[0][k][0],
            "chosen_now": sums[1][k][0],
            "rejected_start": sums[0][k][1],
            "rejected_now": sums[1][k][1],
            "chosen_delta": float(found.chosen[k]),
            "rejected_delta": float(found.rejected[k]),
            "chosen_delta_per_token": float(per_token[0][k]),
            "rejected_delta_per_token": float(per_token[1][k]),
            "quadrant": QUADRANTS[quadrants[k]],
            **track_columns(item, pair.chosen, now, then),
        }
        for k, pair in enumerate(item.pairs)
    ]
    _add_branches(records, item, now, then)
    return records


def track_columns(item: Item, place: int, now: Reading, then: Reading) -> dict[str, float | None]:
    """The likeliest token along a chosen response, mean log-probability over its scored tokens, nats per token.

    `greedy_start` and `greedy_now` take the likeliest token of their own time, `greedy_held` now the one of the start.
    """
    count = sum(item.masks[place])
    values = {"start": then.greedy_logps, "now": now.greedy_logps, "held": now.held}
    return {f"greedy_{when}": float(v[place].double().sum()) / count if count else None for when, v in values.items()}


def _mask(item: Item) -> Tensor:
    """Scored tokens, bool `[R, T]`."""
    mask = torch.zeros(len(item.masks), max(map(len, item.masks)), dtype=torch.bool)
    for place, scored in enumerate(item.masks):
        mask[place, : len(scored)] = torch.tensor(scored, dtype=torch.bool)
    return mask


def _add_branches(records: list[PairRecord], item: Item, now: Reading, then: Reading) -> None:
    known = branches_of(item)
    if not known:
        return
    vocabulary = min(now.branches.shape[-1], then.branches.shape[-1])  # one may have more rows of padding
    tokens = torch.tensor([[place.chosen, place.rejected] for _, place in known])
    policy, start = (reading.branches[:, :vocabulary].double() for reading in (now, then))
    found = branch_point(policy, start, tokens[:, 0], tokens[:, 1])
    for number, (k, place) in enumerate(known):
        records[k] |= {
            "branch_position": place.position,
            "branch_chosen": place.chosen,
            "branch_rejected": place.rejected,
            **{f"branch_{name}": column[number].item() for name, column in vars(found).items()},
        }
