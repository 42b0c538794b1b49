"""The numbers behind the figures: what is binned is binned over all pairs, what is sampled says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from prefopt.report.estimates import Reals
from prefopt.report.folders import Evidence, Pairs, Run
from prefopt.report.trained import series

MEASURES = {
    "ln_ches": "ln-CHES",
    "ches": "CHES",
    "cosine": "cosine of mean states",
    "last_inner_product": "last-state inner product",
    "edit_distance": "normalised edit distance",
    "length_gap": "length gap, chosen − rejected, tokens",
    "chosen_delta": "movement of the chosen response, nats",
    "chosen_delta_per_token": "movement of the chosen response, nats per token",
    "rejected_delta": "movement of the rejected response, nats",
}
"""Columns of the table of pairs that figures show, and their names on axes."""
_MOVEMENTS = ("chosen_delta", "chosen_delta_per_token", "rejected_delta")
SCORES = tuple(name for name in MEASURES if name not in _MOVEMENTS)

BINS, POINTS, EXTREMES, STEPS = 40, 3_000, 25, 300
"""Bars of a histogram; points of all scatters together; pairs at either end that are always among them; points of a
curve."""


@dataclass(frozen=True)
class Histogram:
    """Counts of all pairs between equally spaced edges; what lies outside is in the outermost bars."""

    low: float
    high: float
    counts: tuple[int, ...]
    outside: int


def histograms(all_pairs: Sequence[Pairs], name: str) -> list[Histogram | None]:
    """One measure of several diagnoses over the same bins, which hold the middle 99 % of each."""
    values = [_known(pairs.numbers.get(name)) for pairs in all_pairs]
    ends = [  # values that are there: of few pairs none lies outside
        (np.quantile(found, 0.005, method="lower"), np.quantile(found, 0.995, method="higher"))
        for found in values
        if len(found)
    ]
    if not ends:
        return [None] * len(all_pairs)
    low, high = float(min(end[0] for end in ends)), float(max(end[1] for end in ends))
    if high <= low:
        low, high = low - 0.5, high + 0.5
    return [_histogram(found, low, high) if len(found) else None for found in values]


def _histogram(values: Reals, low: float, high: float) -> Histogram:
    counts, _ = np.histogram(values.clip(low, high), bins=BINS, range=(low, high))
    outside = int(((values < low) | (values > high)).sum())
    return Histogram(low, high, tuple(int(count) for count in counts), outside)


def _known(values: Reals | None) -> Reals:
    return np.empty(0) if values is None else values[np.isfinite(values)]


def quantiles(pairs: Pairs, name: str) -> list[float] | None:
    """Values at 0, 5, 25, 50, 75, 95 and 100 %, over the pairs that have one."""
    values = _known(pairs.numbers.get(name))
    return [float(value) for value in np.quantile(values, QUANTILES)] if len(values) else None


QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def axes(pairs: Pairs) -> tuple[str, str]:
    """What the scatter shows first: score and movement, or score and length gap."""
    return "ln_ches", "chosen_delta" if pairs.moved else "length_gap"


def at_risk(pairs: Pairs, count: int) -> list[int]:
    """Places of the pairs to read first, one of each prompt: those that fell most, before training the highest scores.

    Flagged pairs are left out: an empty or identical response has nothing to read.
    """
    worst = pairs.numbers["chosen_delta"] if pairs.moved else -pairs.numbers["ln_ches"]
    order = np.argsort(np.where(pairs.flagged, np.nan, worst), kind="stable")  # without a number: last
    found: dict[int, int] = {}
    for place in order[: int((np.isfinite(worst) & ~pairs.flagged).sum())]:
        if len(found) == count:
            break
        found.setdefault(int(pairs.groups[place]), int(place))
    return list(found.values())


def sampled(pairs: Pairs, limit: int) -> list[int]:
    """Places of the pairs that the scatter shows, in order: all, or the extreme ones and a random sample of the rest.

    The sample depends on texts alone, so that runs on the same data show the same pairs.
    """
    if len(pairs) <= limit:
        return list(range(len(pairs)))
    chosen: set[int] = set()
    for name in axes(pairs):
        order = np.argsort(pairs.numbers[name], kind="stable")
        known = order[: int(np.isfinite(pairs.numbers[name]).sum())]
        chosen.update(int(place) for place in (*known[:EXTREMES], *known[-EXTREMES:]))
    drawn = np.argsort(_lots(pairs), kind="stable")
    for place in drawn:
        if len(chosen) >= limit:
            break
        chosen.add(int(place))
    return sorted(chosen)


def _lots(pairs: Pairs) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A random number of each pair, from its id and the number of its rejected response."""
    seconds = pairs.numbers.get("rejected_index", np.zeros(len(pairs)))
    lots = (
        int.from_bytes(blake2b(f"{name}\0{second:.0f}".encode("utf-8", "replace"), digest_size=8).digest(), "big")
        for name, second in zip(pairs.ids, seconds, strict=True)
    )
    return np.fromiter(lots, dtype=np.uint64, count=len(pairs))


GROUPS = {
    "Log-probability against the reference, nats": ("displacement/chosen_delta", "displacement/rejected_delta"),
    "Share of rows that fell": ("displacement/chosen_dropped", "displacement/both_dropped"),
    "Log-probability, nats": ("logps/chosen", "logps/rejected"),
    "Reward": ("rewards/chosen", "rewards/rejected", "rewards/margins"),
    "Loss": ("loss",),
    "Share of pairs in the right order": ("rewards/accuracies",),
    "Pull of the loss on each side, 1/nat": ("coefficients/chosen", "coefficients/rejected"),
    "Probe set against the start, nats": ("probes/chosen_delta", "probes/rejected_delta"),
    "Share of the probe set that fell": ("probes/chosen_dropped", "probes/both_dropped"),
    "Likeliest tokens along chosen responses, nats per token": (
        "displacement/greedy_track",
        "displacement/greedy_track_held",
    ),
    "Probability where the probes' responses part": (
        "probes/branch_chosen",
        "probes/branch_rejected",
        "probes/branch_other",
    ),
}
"""Curves over training: what shares a picture."""


@dataclass(frozen=True)
class Curves:
    """One picture: the same metrics of each run that has them, as steps and values."""

    title: str
    lines: tuple[Mapping[str, list[tuple[float, float]]] | None, ...]
    """By place of the run, None where it has none of the metrics."""


def curves(evidence: Sequence[Evidence]) -> list[Curves]:
    """Pictures of the training metrics, then of each evaluation set that was measured more than once."""
    runs = [found.run for found in evidence]
    prefixes = dict.fromkeys(prefix for run in runs if run is not None for prefix in _prefixes(run))
    pictures = []
    for prefix in ("", *prefixes):
        where = f" on {prefix.removeprefix('eval_').rstrip('_') or 'the evaluation set'}" if prefix else ""
        for title, names in GROUPS.items():
            lines = tuple(_lines(run, prefix, names) for run in runs)
            if any(lines):
                pictures.append(Curves(f"{title}{where}", lines))
    return pictures


def _prefixes(run: Run) -> list[str]:
    ends = tuple(name for names in GROUPS.values() for name in names)
    found = {}
    for line in run.metrics:
        for key in line:
            end = next((end for end in ends if key.startswith("eval_") and key.endswith(f"_{end}")), None)
            if end is not None:
                found[key.removesuffix(end)] = True
    return list(found)


def _lines(run: Run | None, prefix: str, names: Sequence[str]) -> dict[str, list[tuple[float, float]]] | None:
    if run is None:
        return None
    found = {name: thinned(series(run, f"{prefix}{name}")) for name in names}
    return {name: line for name, line in found.items() if len(line) > 2} or None  # before and after are no curve


def thinned(line: Sequence[tuple[float, float]], limit: int = STEPS) -> list[tuple[float, float]]:
    """At most `limit` points: means of equally many neighbours."""
    if len(line) <= limit:
        return list(line)
    parts = np.array_split(np.asarray(line), limit)
    return [(float(part[:, 0].mean()), float(part[:, 1].mean())) for part in parts]
