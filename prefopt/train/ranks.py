"""The prompts of all ranks, as a batch-coupled loss sees them."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from prefopt.context import Gather


class RankGather(Gather):
    """The real prompts of every rank, rank after rank; fillers (weight 0) take no part.

    `weight` `[b]` is that of the batch. Making one is collective, as is every call: each rank does both equally often.
    """

    def __init__(self, weight: Tensor) -> None:
        self.real = weight > 0
        mine = self.real.sum()
        self.counts: list[int] = _all(mine).tolist() if _together() else [int(mine)]
        self.before = sum(self.counts[: dist.get_rank()]) if _together() else 0

    def own(self) -> Gather:
        """This rank's real prompts alone; not collective."""
        return _OwnGather(self.real)

    @property
    def total(self) -> int:
        """N, the real prompts of all ranks."""
        return sum(self.counts)

    def __call__(self, values: Tensor) -> Tensor:
        """The detached values of all ranks, `[b, ...] -> [N, ...]`."""
        mine = values.detach()[self.real]
        if not _together():
            return mine
        if mine.dtype == torch.bool:
            return self._ragged(mine.to(torch.uint8)).bool()
        return self._ragged(mine)

    def _ragged(self, mine: Tensor) -> Tensor:
        longest = max(self.counts)
        padded = pad(mine, (0, 0) * (mine.dim() - 1) + (0, longest - len(mine)))
        return torch.cat([part[:count] for part, count in zip(_all(padded), self.counts, strict=True)])

    def local(self, values: Tensor) -> Tensor:
        """This rank's part of `[N, ...]`, `[b, ...]`; 0 for fillers."""
        out = values.new_zeros(len(self.real), *values.shape[1:])
        out[self.real] = values[self.before : self.before + int(self.real.sum())]
        return out


class _OwnGather(Gather):
    """The real prompts of one rank."""

    def __init__(self, real: Tensor) -> None:
        self.real = real

    def __call__(self, values: Tensor) -> Tensor:
        """Detached, without fillers."""
        return values.detach()[self.real]

    def local(self, values: Tensor) -> Tensor:
        """Back to the batch's places, 0 for fillers."""
        return values.new_zeros(len(self.real), *values.shape[1:]).masked_scatter(_wide(self.real, values), values)


def _wide(real: Tensor, values: Tensor) -> Tensor:
    return real.view(-1, *([1] * (values.dim() - 1))).expand(len(real), *values.shape[1:])


def _together() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _all(value: Tensor) -> Tensor:
    """The same tensor of every rank, `[...] -> [W, ...]`."""
    found = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(found, value.contiguous())
    return torch.stack(found)
