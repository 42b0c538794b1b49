"""Progress for people: a bar on a terminal, one line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

logger = logging.getLogger(__name__)

_SHOWN = ("loss", "rewards/accuracies", "rewards/margins", "displacement/chosen_delta", "grad_norm")


class ProgressLines(TrainerCallback):
    """Replaces Trainer's own progress bar and its printed dictionaries. Silent on every rank but the first."""

    def __init__(self, *, every_seconds: float = 10.0) -> None:
        self.every_seconds = every_seconds
        self.bar: Progress | None = None
        self._last = 0.0
        self._logs: dict[str, float] = {}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if not state.is_world_process_zero or args.disable_tqdm:
            return
        console = Console(stderr=True)
        if not console.is_terminal:
            return
        columns = (
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=console)
        self.bar.start()
        self.task = self.bar.add_task("", total=state.max_steps, completed=state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        if not state.is_world_process_zero or args.disable_tqdm or logs is None or "loss" not in logs:
            return
        shown = "  ".join(f"{name} {logs[name]:.4g}" for name in _SHOWN if name in logs)
        if self.bar is not None:
            self.bar.update(self.task, description=shown)
        elif time.monotonic() - self._last > self.every_seconds or state.global_step >= state.max_steps:
            self._last = time.monotonic()
            sys.stderr.write(f"step {state.global_step}/{state.max_steps}  {shown}\n")
            sys.stderr.flush()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
