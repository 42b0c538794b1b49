"""How much of a rejected response's hidden states lies outside the space that the chosen response's states span."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

FEWEST = 4
"""Chosen tokens below which there is no space worth the name."""
_NO_SPREAD = 1e-5


@dataclass(frozen=True)
class ResidualEnergy:
    """`energy` `[N-]`, in variances of a normalised state; `weights` `[N-]` map its middle quantiles to 0.1 to 1.

    `low` and `high` are those quantiles. Low energy: the rejected token's state lies in the chosen response's space.
    """

    energy: Tensor
    weights: Tensor
    low: Tensor
    high: Tensor


def residual_energy(
    chosen: Tensor,
    rejected: Tensor,
    *,
    rank: int = 64,
    quantiles: tuple[float, float] = (0.2, 0.8),
    least: float = 0.1,
    eps: float = 1e-5,
) -> ResidualEnergy | None:
    """Squared residual of rejected states outside the leading directions of the chosen ones.

    States are layer-normalised without affine parameters and centred by the chosen mean; V holds the top `rank` right
    singular vectors of the chosen ones (at most tokens - 1 and H): e = |(I - V V^T)(z - mean)|^2 / H. None with fewer
    than four chosen tokens. Needs many more tokens than directions to mean anything: lower `rank` to about a quarter of
    them for short responses.

    Shapes: chosen `[N+, H]`, rejected `[N-, H]`, of any one layer; the method takes one before the last.
    Source: arXiv:2605.00380, released code. Differs: an exact decomposition instead of a randomised one.
    """
    if len(chosen) < FEWEST:
        return None
    width = chosen.shape[-1]
    plus, minus = (F.layer_norm(side, (width,), eps=eps) for side in (chosen, rejected))
    mean = plus.mean(0)
    directions = torch.linalg.svd(plus - mean, full_matrices=False).Vh[: min(rank, len(chosen) - 1, width)]  # [k, H]
    centred = minus - mean
    energy = (centred - centred @ directions.T @ directions).square().sum(-1) / width
    low, high = (energy.quantile(q) for q in quantiles)
    if high - low < _NO_SPREAD:
        weights = torch.full_like(energy, (1 + least) / 2)
    else:
        weights = ((energy - low) / (high - low)).clamp(0, 1) * (1 - least) + least
    return ResidualEnergy(energy, weights, low, high)
