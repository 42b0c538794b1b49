"""What a batch-coupled loss is told beyond its own pairs: the values of every rank, keyed random numbers, its state.

A loss takes it as an optional third argument and never imports a collective. Sizes: b prompts on this rank, N on all
ranks together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prefopt._torch import torch
from prefopt.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


class Gather:
    """How a batch-coupled loss sees the prompts of every rank. This one is alone: its prompts are all there are.

    Ranks may hold different numbers of prompts, none included; each rank calls the same methods equally often.
    """

    def __call__(self, values: Tensor) -> Tensor:
        """The detached values of all ranks in rank order, `[b, ...] -> [N, ...]`, the same on every rank."""
        return values.detach()

    def local(self, values: Tensor) -> Tensor:
        """This rank's part of something computed for all prompts, `[N, ...] -> [b, ...]`; the inverse of a call."""
        return values

    def own(self) -> Gather:
        """The same for this rank's prompts alone."""
        return self

    def reduce(self, losses: Tensor, reduction: Callable[[Tensor], Tensor]) -> Tensor:
        """Losses `[b]` whose mean over all prompts has the value and the exact gradient of `reduction` of all `[N]`.

        Since `d R(l_1..l_N) = sum_i w_i d l_i` with `w = dR/dl` at the current values, only detached values cross
        ranks. Each entry has the value of the whole reduction.
        """
        with torch.enable_grad():
            everyone = self(losses).requires_grad_()
            if not len(everyone):  # nobody has a prompt, and a reduction of nothing has no value
                return losses
            value = reduction(everyone)
            (weights,) = torch.autograd.grad(value, everyone)
        share = len(everyone) * self.local(weights) * losses
        return value.detach() + share - share.detach()


@dataclass(frozen=True)
class Draw:
    """Random numbers that belong to a prompt: keyed by run seed, step and prompt id, never by the global random state.

    The same prompt draws the same numbers on any number of ranks and in any micro-batch, and a resumed run repeats
    itself.
    """

    seed: int = 0
    step: int = 0

    def __call__(self, ids: Tensor | None, count: int) -> Tensor:
        """Uniform numbers in (0, 1), float64 `[b, count]`, for prompts with these ids, int64 `[b]`.

        Number j of a prompt does not depend on `count`.
        Raises: `DataError` without ids.
        """
        if ids is None:
            raise DataError("random numbers are keyed by prompt: give Scores(..., ids=), int64 [B].")
        column = torch.arange(count, device=ids.device)
        start = (_GOLDEN * (self.seed + 1) + 2**63) % 2**64 - 2**63  # int64 wraps around, Python's integers do not
        key = _mixed(_mixed(_mixed(ids.long() + start) + self.step).unsqueeze(-1) + column)
        return ((key >> 11) & (2**53 - 1)).double().add(0.5) / 2**53


_GOLDEN = -7046029254386353131  # 2**64 / golden ratio, as int64


def _mixed(key: Tensor) -> Tensor:
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014): neighbouring keys give unrelated bits."""
    key = key + _GOLDEN
    key = (key ^ _shifted(key, 30)) * -4658895280553007687
    key = (key ^ _shifted(key, 27)) * -7723592293110705685
    return key ^ _shifted(key, 31)


def _shifted(key: Tensor, bits: int) -> Tensor:
    return (key >> bits) & ((1 << (64 - bits)) - 1)  # the shift of int64 drags the sign along


@dataclass(frozen=True)
class StepContext:
    """What the trainer tells a loss for one micro-batch, or for one whole step under `coupling: step`.

    `state` is what the loss gave back last time, None at the start. In evaluation `training` is False, `gather` is
    local, the state is the frozen one, and a state that comes back is dropped: evaluation cannot move training.
    """

    gather: Gather = field(default_factory=Gather)
    draw: Draw = field(default_factory=Draw)
    state: Any = None
    step: int = 0
    total_steps: int = 1
    training: bool = True
