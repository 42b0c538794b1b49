"""Alarms: what a run says, or stops for, while there is still something to be done about it."""

from __future__ import annotations

import logging
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from prefopt.config.sections import AlarmSection
from prefopt.runs import RunDirectory

logger = logging.getLogger(__name__)

Logs = Mapping[str, float]

_REMEDIES = (
    "What to try: an NLL term beside the loss (loss: [{name: dpo}, {name: nll, weight: 1.0}]), loss.name: dpop or "
    "dpo_shift, a lower training.learning_rate, or fewer pairs that look alike (prefopt diagnose RECIPE --out DIR "
    "--keep-lowest 0.5). docs/displacement.md compares them; prefopt diagnose RUN --out DIR shows where the mass went."
)
ABOVE = {"chosen_below_start": 0.8, "squeezing": 0.02, "loss_spike": 10.0, "runaway_margins": 20.0}
"""Thresholds of alarms that name none, in the units of `AlarmSection.above`."""


def chosen_below_start(logs: Logs, above: float) -> str | None:
    """Too many probe pairs' chosen responses are less likely than before training."""
    share = logs.get("probes/chosen_dropped")
    if share is None or share <= above:
        return None
    return (
        f"the chosen response is less likely than at the start in {share:.0%} of the probe pairs (alarm above "
        f"{above:.0%}); on average it moved by {logs['probes/chosen_delta']:+.3g} nats{_rejected(logs)}. {_REMEDIES}"
    )


def squeezing(logs: Logs, above: float) -> str | None:
    """Both responses fall and the tokens that the model finds likeliest anyway gain."""
    gain = logs.get("displacement/greedy_track_change")
    chosen, rejected = logs.get("probes/chosen_delta"), logs.get("probes/rejected_delta")
    if gain is None or chosen is None or rejected is None or gain <= above or max(chosen, rejected) >= 0:
        return None
    return (
        f"both responses of the probe pairs fall (chosen {chosen:+.3g} nats{_rejected(logs)}) while the likeliest "
        f"token gains {gain:+.3g} nats per token along chosen responses (alarm above {above:g}): probability is "
        f"squeezed into what the model says anyway. {_REMEDIES}"
    )


def _rejected(logs: Logs) -> str:
    moved = logs.get("probes/rejected_delta")
    return "" if moved is None else f", the rejected one by {moved:+.3g}"


def runaway_margins(logs: Logs, above: float) -> str | None:
    """Rewards part without bound: nothing is learned from such pairs any more, and the policy still moves."""
    margin = logs.get("rewards/margins")
    if margin is None or margin <= above:
        return None
    return (
        f"the mean reward margin is {margin:.3g} (alarm above {above:g}): the loss is flat there and the policy far "
        "from its reference. What to try: fewer epochs, a lower training.learning_rate, a larger beta, or loss.name: "
        "ipo, which has a margin to reach."
    )


class LossSpike:
    """The loss leaps away from the median of the last logged ones, measured in their typical distance from it."""

    def __init__(self, *, window: int = 20, least: int = 5) -> None:
        self.seen: deque[float] = deque(maxlen=window)
        self.least = least

    def __call__(self, logs: Logs, above: float) -> str | None:
        loss = logs.get("loss")
        if loss is None:
            return None
        before = list(self.seen)
        self.seen.append(loss)
        if len(before) < self.least:
            return None
        middle = statistics.median(before)
        usual = max(statistics.median(abs(value - middle) for value in before), 0.01 * abs(middle), 1e-6)
        if loss - middle <= above * usual:
            return None
        return (
            f"the loss jumped to {loss:.4g}; the median of the last {len(before)} logged ones is {middle:.4g} and "
            f"their typical distance {usual:.2g} (alarm above {above:g} times that). What to try: a lower "
            "training.learning_rate, a longer warm-up, a smaller training.max_grad_norm; look at the rows of that step."
        )


class Alarms(TrainerCallback):
    """Looks at every line that is logged. `stopped` says why the run was ended, once it was.

    A warning is given when an alarm begins, not again while it lasts.
    """

    def __init__(self, alarms: Sequence[AlarmSection], *, run: RunDirectory | None = None) -> None:
        rules: dict[str, Callable[[], Callable[[Logs, float], str | None]]] = {
            "chosen_below_start": lambda: chosen_below_start,
            "squeezing": lambda: squeezing,
            "loss_spike": LossSpike,
            "runaway_margins": lambda: runaway_margins,
        }
        self.watched = [(alarm, rules[alarm.name]()) for alarm in alarms]
        self.ringing: set[int] = set()
        self.run, self.stopped = run, ""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        logs = logs or {}
        for number, (alarm, rule) in enumerate(self.watched):
            if not _measured(alarm.name, logs):
                continue
            found = rule(logs, ABOVE[alarm.name] if alarm.above is None else alarm.above)
            if found is None:
                self.ringing.discard(number)
            elif number not in self.ringing:
                self.ringing.add(number)
                self._ring(alarm, found, state, control)

    def _ring(self, alarm: AlarmSection, found: str, state: TrainerState, control: TrainerControl) -> None:
        text = f"step {state.global_step}, alarm {alarm.name}: {found}"
        if self.run is not None and state.is_world_process_zero:
            self.run.append_metrics({"step": state.global_step, f"alarms/{alarm.name}": 1.0})
        if alarm.action == "warn":
            logger.warning("%s", text)
        elif not self.stopped and state.global_step > 0:  # before the first step there is nothing to keep
            self.stopped = text
            control.should_save = control.should_training_stop = True


def _measured(name: str, logs: Logs) -> bool:
    """Whether a line holds what the alarm reads: a line that does not says nothing of it."""
    reads = {
        "chosen_below_start": "probes/chosen_dropped",
        "squeezing": "displacement/greedy_track_change",
        "loss_spike": "loss",
        "runaway_margins": "rewards/margins",
    }
    return reads[name] in logs
