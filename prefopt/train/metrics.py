"""Metrics as sums and counts: added on the device, reduced over ranks once per logging step, divided once.

A mean over windows, micro-batches and ranks is exact only when what is averaged is known to be one number per row. So
each metric is a pair (sum, count) over real rows; nothing is averaged before everything is summed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prefopt.diagnostics.coefficients import mean_slopes
from prefopt.scores import LossOutput, Scores


def wide(value: Tensor) -> Tensor:
    """float64, or float32 on a device that has no float64."""
    return value.float() if value.device.type == "mps" else value.double()


Reduce = Callable[[Tensor], Tensor]


class MetricSums:
    """Sums and counts by name. Every rank must add the same names, as code that is the same on every rank does."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}

    def add(self, values: Mapping[str, Tensor], weight: Tensor) -> None:
        """One number per row, `[B]`, counted with `weight` `[B]`: 1 for a row, 0 for a filler."""
        for name, value in values.items():
            # filled, not multiplied: a filler's value counts for nothing, whatever it is
            kept = wide(value.detach()).masked_fill(weight == 0, 0)
            self.add_total(name, (kept * weight).sum(), weight.sum())

    def add_total(self, name: str, total: Tensor, count: Tensor) -> None:
        """A sum over `count` things that are not rows, such as tokens."""
        pair = torch.stack([wide(total.detach()), wide(count.detach())])
        self._sums[name] = self._sums[name] + pair if name in self._sums else pair

    @property
    def names(self) -> list[str]:
        """Names added since the last time, sorted."""
        return sorted(self._sums)

    def drain(
        self, reduce: Reduce, *, names: Sequence[str] | None = None, device: torch.device | str = "cpu"
    ) -> dict[str, tuple[float, float]]:
        """(sum, count) by name over everything added since the last time, on all ranks, and a fresh start.

        `reduce` sums a tensor `[M, 2]` over ranks. `names` are what the ranks agreed on, where they may know different
        ones.
        """
        found = self.totals(reduce, names=names, device=device)
        self._sums = {}
        return found

    def totals(
        self, reduce: Reduce, *, names: Sequence[str] | None = None, device: torch.device | str = "cpu"
    ) -> dict[str, tuple[float, float]]:
        """As `drain`, and everything stays."""
        names = self.names if names is None else names
        if not names:
            return {}
        nothing = wide(torch.zeros(2, device=device))
        sums = reduce(torch.stack([self._sums.get(name, nothing).to(device) for name in names])).tolist()
        return {name: (total, count) for name, (total, count) in zip(names, sums, strict=True)}


def means(sums: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Each sum over its count. A metric that counted nothing is left out."""
    return {name: total / count for name, (total, count) in sums.items() if count > 0}


def row_metrics(out: LossOutput) -> dict[str, Tensor]:
    """What is reported of every row, `[B]`: the loss, each part of a sum of losses, and the loss's own metrics."""
    return {"loss": out.losses, **{f"loss/{name}": part for name, part in out.parts.items()}, **out.metrics}


def pair_metrics(out: LossOutput, scores: Scores) -> dict[str, Tensor]:
    """What is reported of rows that have a rejected response, `[B]`; a row without one must not be counted.

    `rewards/*`, and beside a reference `displacement/both_dropped`. `rewards/ties` is apart from `rewards/accuracies`:
    a tie is not a win.
    """
    if scores.policy.shape[1] < 2:
        return {}
    rewards, present = out.rewards, scores.present[:, 1:]
    chosen, rejected = rewards[:, 0], _mean_of(rewards[:, 1:], present)
    best = rewards[:, 1:].masked_fill(~present, -torch.inf).amax(-1)
    found = {
        "rewards/chosen": chosen,
        "rewards/rejected": rejected,
        "rewards/margins": chosen - rejected,
        "rewards/accuracies": (chosen > best).float(),
        "rewards/ties": (chosen == best).float(),
    }
    if scores.reference is not None:
        moved = scores.logratios.detach()
        found["displacement/both_dropped"] = ((moved[:, 0] < 0) & (_mean_of(moved[:, 1:], present) < 0)).float()
    return found


@dataclass(frozen=True)
class Side:
    """The chosen or the rejected responses of a batch: `present` bool `[B, r]` says which exist.

    Rows that are labelled one by one have a desirable response, which is chosen, or an undesirable one.
    """

    name: str
    responses: slice
    present: Tensor

    @property
    def some(self) -> Tensor:
        """Rows that have such a response, bool `[B]`."""
        return self.present.any(-1)

    def mean(self, values: Tensor) -> Tensor:
        """Of `[B, R]` the mean over the row's responses of this side, `[B]`."""
        return _mean_of(values[:, self.responses], self.present)

    def total(self, values: Tensor) -> Tensor:
        """Of `[B, R]` the sum over the row's responses of this side, `[B]`."""
        return values[:, self.responses].masked_fill(~self.present, 0).sum(-1)


def sides(scores: Scores) -> list[Side]:
    """Both sides, or the one that this batch has."""
    present = scores.present
    if scores.labels is not None:
        first, label = present[:, :1], scores.labels.unsqueeze(-1)
        return [Side("chosen", slice(0, 1), first & label), Side("rejected", slice(0, 1), first & ~label)]
    rest = [Side("rejected", slice(1, None), present[:, 1:])] if present.shape[1] > 1 else []
    return [Side("chosen", slice(0, 1), present[:, :1]), *rest]


def add_sides(sums: MetricSums, scores: Scores, weight: Tensor, *, slopes: Tensor | None = None) -> None:
    """Add what is reported of each side, over the rows that have it.

    `logps/SIDE` in nats. Beside a reference `displacement/SIDE_delta`, how far the policy has moved from it, in nats
    per response; `_per_token`, all movement over all tokens; `_mean_per_token`, each response's own mean; and
    `displacement/chosen_dropped`. With `slopes` `[B, R, T]`, the derivative of the losses in the policy's
    log-probabilities, `coefficients/SIDE`: how hard the loss pulls the chosen response up and the rejected one down.
    """
    moved = None if scores.reference is None else scores.logratios.detach()
    pulls = None if slopes is None else mean_slopes(slopes, scores.mask)
    for side in sides(scores):
        counted = weight * side.some
        found = {f"logps/{side.name}": side.mean(scores.sums.detach())}
        if pulls is not None:
            found[f"coefficients/{side.name}"] = side.mean(-pulls if side.name == "chosen" else pulls)
        if moved is not None:
            name = f"displacement/{side.name}_delta"
            found[name] = side.mean(moved)
            found[f"{name}_mean_per_token"] = side.mean(moved / scores.lengths.clamp(min=1))
            if side.name == "chosen":
                found["displacement/chosen_dropped"] = (found[name] < 0).float()
            tokens = (side.total(scores.lengths) * counted).sum()
            sums.add_total(f"{name}_per_token", (side.total(moved) * counted).sum(), tokens)
        sums.add(found, counted)


def _mean_of(values: Tensor, present: Tensor) -> Tensor:
    """Mean over the responses that exist, `[B, R] -> [B]`."""
    return values.masked_fill(~present, 0).sum(-1) / present.sum(-1).clamp(min=1)
