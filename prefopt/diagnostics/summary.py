"""What a diagnosis comes to: the numbers of `summary.json`, each of which can be had again from the table of pairs."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any

import torch
from torch import Tensor

from prefopt.diagnostics.displacement import QUADRANTS, Normalised, normalised
from prefopt.diagnostics.filters import spearman
from prefopt.diagnostics.items import PairRecord

QUANTILES = (0, 5, 25, 50, 75, 95, 100)
_DESCRIBED = (
    "ches",
    "ln_ches",
    "cosine",
    "last_inner_product",
    "edit_distance",
    "length_gap",
    "common_prefix",
    "chosen_tokens",
    "rejected_tokens",
)
_MOVED = (
    "chosen_delta",
    "rejected_delta",
    "chosen_start",
    "chosen_now",
    "rejected_start",
    "rejected_now",
    "chosen_delta_per_token",
    "rejected_delta_per_token",
    "greedy_start",
    "greedy_now",
    "greedy_held",
)
_BRANCH = ("chosen", "rejected", "other")
_TRACK = ("start", "now", "held")
_SHOWN = 10
"""Pairs and tokens that a summary names."""


@dataclass
class PairNumbers:
    """Columns of numbers of all pairs, 8 bytes each; a pair without a value has NaN."""

    flags: Counter[str] = field(default_factory=Counter)
    quadrants: Counter[str] = field(default_factory=Counter)
    gainers: Counter[str] = field(default_factory=Counter)
    gains: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    thirds: int = 0
    greedy_changed: int = 0
    lowest: list[tuple[float, int, str, int]] = field(default_factory=list)
    _columns: dict[str, array[float]] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    _pairs: int = 0

    def add(self, records: Sequence[PairRecord]) -> None:
        """Take in written records."""
        for record in records:
            self._pairs += 1
            self.flags.update(filter(None, record["flag"].split(",")))
            for name in _DESCRIBED:
                self._append(name, record[name])
            if "quadrant" in record:
                self._add_movement(record)
        self.lowest = nsmallest(_SHOWN, self.lowest)

    def _add_movement(self, record: PairRecord) -> None:
        self.quadrants[record["quadrant"]] += 1
        for name in _MOVED:
            self._append(name, record[name])
        self.lowest.append((record["chosen_delta"], self._pairs, record["id"], record["rejected_index"]))
        if record["branch_position"] is None:
            return
        for when in ("start", "now"):
            for name in _BRANCH:
                self._append(f"branch_{name}_{when}", record[f"branch_{name}_{when}"])
        if record["branch_gain"] > 0:  # where nothing moved there is none
            self.gainers[record["branch_gainer"]] += 1
            self.gains[record["branch_gainer"]] += record["branch_gain"]
        self.thirds += record["branch_gainer_is_third"]
        self.greedy_changed += record["branch_greedy_start"] != record["branch_greedy_now"]

    def _append(self, name: str, value: float | None) -> None:
        self._columns[name].append(float("nan") if value is None else float(value))

    def __len__(self) -> int:
        return self._pairs

    def column(self, name: str) -> Tensor:
        """All values of a column, float64; NaN where there is none."""
        return torch.tensor(self._columns[name], dtype=torch.float64)

    def scores(self) -> dict[str, Any]:
        """Mean and quantiles of each column over the pairs that have a value."""
        return {name: described(self.column(name)) for name in _DESCRIBED}

    def length_bias(self) -> dict[str, float | None]:
        """Spearman's correlation of the scores with the length gap, chosen minus rejected."""
        return {name: self._correlation(name, self.column("length_gap")) for name in ("ches", "ln_ches")}

    def _correlation(self, name: str, other: Tensor) -> float | None:
        values = self.column(name)
        known = ~(values.isnan() | other.isnan())
        return spearman(values[known], other[known])

    def movement(self) -> dict[str, Any]:
        """The movement of all pairs, in every normalisation, and where the mass went."""
        chosen, rejected = self.column("chosen_delta"), self.column("rejected_delta")
        return {
            "chosen": _normalised(normalised(chosen, self.column("chosen_tokens"))),
            "rejected": _normalised(normalised(rejected, self.column("rejected_tokens"))),
            "quadrants": {name: self.quadrants[name] / len(self) for name in QUADRANTS},
            "chosen_dropped": _share(chosen < 0),
            "both_dropped": _share((chosen < 0) & (rejected < 0)),
            "margin_mean": float((chosen - rejected).mean()),
            "margin_grew": _share(chosen > rejected),
            "ranking_accuracy": {
                when: _share(self.column(f"chosen_{when}") > self.column(f"rejected_{when}"))
                for when in ("start", "now")
            },
            "spearman_with_chosen_delta": self._ranking("chosen_delta"),
            "spearman_with_chosen_delta_per_token": self._ranking("chosen_delta_per_token"),
            "greedy_track": {when: float(self.column(f"greedy_{when}").nanmean()) for when in _TRACK},
            "branch": self._branch(),
            "moved_most": [
                {"id": id_, "rejected_index": index, "chosen_delta": delta} for delta, _, id_, index in self.lowest
            ],
        }

    def _ranking(self, moved: str) -> dict[str, float | None]:
        names = ("ches", "ln_ches", "cosine", "last_inner_product", "edit_distance", "length_gap")
        return {name: self._correlation(name, self.column(moved)) for name in names}

    def _branch(self) -> dict[str, Any]:
        count = len(self._columns["branch_chosen_now"])
        if not count:
            return {"pairs": 0}
        means = {
            name: {when: float(self.column(f"branch_{name}_{when}").mean()) for when in ("start", "now")}
            for name in _BRANCH
        }
        top = sorted(self.gainers.items(), key=lambda found: (-found[1], found[0]))[:_SHOWN]
        return {
            "pairs": count,
            **means,
            "gainer_is_third": self.thirds / count,
            "greedy_changed": self.greedy_changed / count,
            "top_gainers": [
                {"token": token, "pairs": pairs, "mean_gain": self.gains[token] / pairs} for token, pairs in top
            ],
        }


def described(values: Tensor) -> dict[str, Any]:
    """Mean and quantiles of the values that are numbers, linear between neighbours."""
    known = values[~values.isnan()].sort().values
    if not len(known):
        return {"pairs": 0, "mean": None, "quantiles": dict.fromkeys(map(str, QUANTILES))}
    return {
        "pairs": len(known),
        "mean": float(known.mean()),
        "quantiles": {str(q): _between(known, q / 100) for q in QUANTILES},
    }


def _between(known: Tensor, share: float) -> float:
    place = share * (len(known) - 1)
    low = int(place)
    high = min(low + 1, len(known) - 1)
    return float(known[low] + (place - low) * (known[high] - known[low]))


def _normalised(values: Normalised) -> dict[str, float]:
    return {name: float(value) for name, value in vars(values).items()}


def _share(holds: Tensor) -> float:
    return float(holds.double().mean())
