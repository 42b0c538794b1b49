"""How far a run is: a bar on a terminal, otherwise a line now and then. Always on stderr."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

INTERVAL = 10.0
"""Seconds between lines where there is no terminal."""


class Meter:
    """Counts records. `total` may be unknown."""

    def __init__(self, label: str, total: int | None = None, *, quiet: bool = False) -> None:
        self._label, self._total = label, total
        self._began = self._said = time.monotonic()
        self._bar: Progress | None = None
        if not quiet and sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(label, total=total)
        self._quiet = quiet

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def at(self, count: int) -> None:
        """`count` records are done."""
        if count % 100 or self._quiet:
            return
        if self._bar:
            self._bar.update(self._task, completed=count)
        elif time.monotonic() - self._said > INTERVAL:
            self._said = time.monotonic()
            rate = count / (self._said - self._began)
            sys.stderr.write(f"{self._label}: {count:,} records, {rate:,.0f} a second\n")
