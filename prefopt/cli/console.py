"""What commands that load a model share: who speaks, how far the work is, and how several processes end."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Shown = Callable[[int, int], None]
"""Told how much is done, and of how much."""


def first_process() -> bool:
    """Whether this is the process that speaks."""
    return os.environ.get("RANK", "0") == "0"


def speak() -> None:
    """Our own log lines on stderr, from the first process; the chatter of other libraries is switched off."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in ("prefopt", "data_tools"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if first_process() else logging.ERROR)
        logger.propagate = False
    import transformers
    from datasets import disable_progress_bars

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    disable_progress_bars()


def together() -> None:
    """Wait for all processes and end their group: one that leaves early takes its threads down and fails the launch."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()


@contextmanager
def shown_progress(what: str, *, first: bool) -> Iterator[Shown | None]:
    """A bar on a terminal, a line now and then elsewhere, nothing from other processes than the first."""
    console = Console(stderr=True)
    if not first:
        yield None
    elif console.is_terminal:
        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("")
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _Lines(what)


class _Lines:
    """Says how far it is every ten seconds, and at the end."""

    def __init__(self, what: str) -> None:
        self.what, self.last = what, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self.last > 10 or done == total:
            self.last = time.monotonic()
            sys.stderr.write(f"{self.what} {done:,}/{total:,}\n")
            sys.stderr.flush()
