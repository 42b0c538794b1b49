"""Metrics as sums and counts: added on the device, reduced over ranks once per logging step, divided once.

A mean over windows, micro-batches and ranks is exact only when what is averaged is known to be one number per row. So
each metric is a pair (sum, count) over real rows; nothing is averaged before everything is summed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

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


def row_metrics(out: LossOutput, scores: Scores) -> dict[str, Tensor]:
    """What is reported of every row, `[B]`: each part of a sum of losses, the loss's own metrics, `logps/chosen` (nats)
    and, beside a reference, `displacement/*` of the chosen response: how far the policy has moved from it, in nats.
    """
    found: dict[str, Tensor] = {f"loss/{name}": part for name, part in out.parts.items()}
    found.update(out.metrics)
    found["logps/chosen"] = scores.sums.detach()[:, 0]
    if scores.reference is not None:
        found |= _displacement(scores)
    return found


def pair_metrics(out: LossOutput, scores: Scores) -> dict[str, Tensor]:
    """What is reported of rows that have a rejected response, `[B]`; a row without one must not be counted.

    `rewards/*`, `logps/rejected`, and beside a reference what happened to the rejected side. `rewards/ties` is apart
    from `rewards/accuracies`: a tie is not a win.
    """
    if scores.policy.shape[1] < 2:
        return {}
    rewards, present = out.rewards, scores.present[:, 1:]
    chosen, rejected = rewards[:, 0], _mean_of(rewards[:, 1:], present)
    best = rewards[:, 1:].masked_fill(~present, -torch.inf).amax(-1)
    found = {
        "logps/rejected": _mean_of(scores.sums.detach()[:, 1:], present),
        "rewards/chosen": chosen,
        "rewards/rejected": rejected,
        "rewards/margins": chosen - rejected,
        "rewards/accuracies": (chosen > best).float(),
        "rewards/ties": (chosen == best).float(),
    }
    if scores.reference is not None:
        moved = scores.logratios.detach()
        fallen = _mean_of(moved[:, 1:], present)
        found["displacement/rejected_delta"] = fallen
        found["displacement/both_dropped"] = ((moved[:, 0] < 0) & (fallen < 0)).float()
    return found


def _mean_of(values: Tensor, present: Tensor) -> Tensor:
    """Mean over the responses that exist, `[B, R] -> [B]`."""
    return values.masked_fill(~present, 0).sum(-1) / present.sum(-1).clamp(min=1)


def _displacement(scores: Scores) -> dict[str, Tensor]:
    moved = scores.logratios.detach()
    per_token = moved / scores.lengths.clamp(min=1)
    found = {
        "displacement/chosen_delta": moved[:, 0],
        "displacement/chosen_delta_per_token": per_token[:, 0],
        "displacement/chosen_dropped": (moved[:, 0] < 0).float(),
    }
    return found
