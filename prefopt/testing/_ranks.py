"""Several ranks in one process, for losses that look at the prompts of all of them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from prefopt.context import Gather, StepContext
from prefopt.losses import Loss
from prefopt.scores import LossOutput, Scores
from prefopt.testing._make import rows_of, value_and_gradient


class SimulatedGather(Gather):
    """One of several ranks that run as threads of this process."""

    def __init__(self, rank: int, counts: Sequence[int], board: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.counts, self.board, self.barrier = rank, counts, board, barrier

    def __call__(self, values: Tensor) -> Tensor:
        """The values of all ranks, once each has written its own."""
        self.board[self.rank] = values.detach()
        self.barrier.wait()
        everyone = torch.cat(self.board)
        self.barrier.wait()
        return everyone

    def own(self) -> Gather:
        """This rank alone."""
        return Gather()

    def local(self, values: Tensor) -> Tensor:
        """This rank's part."""
        start = sum(self.counts[: self.rank])
        return values[start : start + self.counts[self.rank]]


def simulate_ranks(
    loss: Loss, scores: Scores, counts: Sequence[int], context: StepContext
) -> list[tuple[LossOutput, Tensor]]:
    """The output and the gradient `[b, R, T]` of each of `len(counts)` ranks, which share out the rows in order.

    Raises: what a rank raised; `TimeoutError` when ranks gather unequally often, which would hang a real run.
    """
    board, barrier = [None] * len(counts), threading.Barrier(len(counts), timeout=20)
    found: list[Any] = [None] * len(counts)

    def run(rank: int) -> None:
        start = sum(counts[:rank])
        rows = torch.arange(start, start + counts[rank])
        gather = SimulatedGather(rank, counts, board, barrier)
        try:
            found[rank] = value_and_gradient(loss, rows_of(scores, rows), dataclasses.replace(context, gather=gather))
        except Exception as error:
            found[rank] = error
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [item for item in found if isinstance(item, Exception)]
    own = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
    if errors:
        raise own[0] if own else TimeoutError("ranks gather unequally often")
    return found


def same_state(one: Any, other: Any) -> bool:
    """Whether two states of a loss hold the same numbers."""
    if one is None or other is None:
        return one is other
    pairs = [(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(other)]
    return all(torch.allclose(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-9) for a, b in pairs)
