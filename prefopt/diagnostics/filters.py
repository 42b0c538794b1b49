"""Which pairs a score keeps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def keep_lowest(scores: Tensor, fraction: float, *, usable: Tensor | None = None) -> Tensor:
    """Places of the pairs with the lowest scores, in the order of the data, int64 `[K]`.

    K = max(1, round(fraction * N)) of the N usable pairs with a finite score; ties are kept in the order of the data.
    Shapes: scores, usable (bool; all by default) `[B]`.
    Source: arXiv:2410.08847, Section 6.3, with length-normalised CHES.
    """
    kept = torch.isfinite(scores) if usable is None else torch.isfinite(scores) & usable.bool()
    places = kept.nonzero().squeeze(-1)
    if not len(places):
        return places
    count = max(1, round(fraction * len(places)))
    order = torch.sort(scores[places], stable=True).indices
    return places[order[:count]].sort().values


def quantile_window(total: int, size: int, quantile: float) -> range:
    """Ranks of the `size` pairs around a quantile of `total` sorted ones, shifted so that all of them exist.

    The window begins size // 2 before rank round(quantile * (total - 1)), halves to even.
    Source: the subset selection of the code released with arXiv:2410.08847.
    """
    size = min(size, total)
    start = round(quantile * (total - 1)) - size // 2
    start = min(max(start, 0), total - size)
    return range(start, start + size)


def ranks(values: Sequence[float] | Tensor) -> Tensor:
    """Ranks from 0, float64 `[B]`; equal values share the mean of their ranks."""
    values = torch.as_tensor(values, dtype=torch.float64)
    _, inverse, counts = values.unique(return_inverse=True, return_counts=True)
    means: Tensor = counts.cumsum(0).double() - (counts.double() + 1) / 2
    return means[inverse]


def spearman(a: Sequence[float] | Tensor, b: Sequence[float] | Tensor) -> float | None:
    """Spearman's rank correlation, ties by mean ranks; None where one side does not vary."""
    x, y = ranks(a), ranks(b)
    x, y = x - x.mean(), y - y.mean()
    scale = (x.square().sum() * y.square().sum()).sqrt()
    return None if len(x) < 2 or scale == 0 else float((x * y).sum() / scale)
