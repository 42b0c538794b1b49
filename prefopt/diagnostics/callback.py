"""Looks at the probe set during training, every so many steps and at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from prefopt.diagnostics.probes import Probes

logger = logging.getLogger(__name__)


class ProbeCallback(TrainerCallback):
    """Reads the probes before the first step, every `every` steps and after the last one; `log` receives the metrics.

    A resumed run goes on comparing with the start of the run that it continues.
    """

    def __init__(self, probes: Probes, *, every: int, log: Callable[[dict[str, float]], None] | None = None) -> None:
        self.probes, self.every, self.log = probes, every, log
        self.known = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        self.known = True
        if state.global_step == 0:
            self.probes.begin(model)
            self._measure(model, state, control)
        elif not self.probes.resume():
            self.known = False
            logger.warning(
                "the probe set is not looked at: %s does not hold the start of this run for these %d rows.",
                self.probes.folder,
                len(self.probes.probes.ids),
            )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        last = state.global_step >= state.max_steps or control.should_training_stop
        if self.known and (state.global_step % self.every == 0 or last):
            self._measure(model, state, control)

    def _measure(self, model: Any, state: TrainerState, control: TrainerControl) -> None:
        found = self.probes.measure(model, state.global_step)
        due = control.should_log  # logging takes it back, and the step's own line would be lost
        if self.log is not None:
            self.log(found)
        control.should_log = due
