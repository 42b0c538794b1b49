"""One process or several that share the work: which one this is, where it computes, and waiting for the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch

from prefopt.errors import RunError

_PATIENCE = timedelta(days=2)
"""How long a process waits for the slowest one: nothing is exchanged while they compute."""


def _nobody() -> None:
    pass


@dataclass(frozen=True)
class Processes:
    """This process among `world`; `wait` returns once all have called it."""

    rank: int = 0
    world: int = 1
    device: str = "cpu"
    wait: Callable[[], None] = _nobody

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    @contextmanager
    def first_then_others(self) -> Iterator[None]:
        """The block is run by the first process, then by the others, who find what it has left."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()


def processes() -> Processes:
    """Those that a launcher has started, or this one alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Processes(device="cuda" if torch.cuda.is_available() else "cpu")
    from accelerate import PartialState

    on_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true") or not torch.cuda.is_available()
    state = PartialState(cpu=on_cpu, timeout=_PATIENCE)
    if state.num_processes != world:  # they would all write the same files
        raise RunError(f"the launcher started {world} processes, and they do not find one another.")
    return Processes(state.process_index, state.num_processes, str(state.device), state.wait_for_everyone)
