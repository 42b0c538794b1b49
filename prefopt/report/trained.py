"""What a training run's metrics say."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefopt.report.claims import Claim, Findings
from prefopt.report.folders import Run

_LAST = {
    "displacement/chosen_delta": ("chosen log-probability against the reference, last logged steps", "nats"),
    "displacement/rejected_delta": ("rejected log-probability against the reference, last logged steps", "nats"),
    "displacement/chosen_dropped": ("rows whose chosen response is below the reference, last logged steps", "share"),
    "rewards/accuracies": ("rows whose chosen reward is the higher one, last logged steps", "share"),
    "loss": ("loss, last logged steps", ""),
}
_ACCURACY = "_answer_accuracy"
ALARMS = "alarms/"


def trained(run: Run) -> Findings:
    """What the metrics of a run say."""
    claims = training_claims(run)
    by = {claim.key: claim for claim in claims}
    steps = max((int(line["step"]) for line in run.metrics if _is_real(line.get("step"))), default=0)
    sentences = [f"Training made {steps:,} steps."]
    chosen, fell = by.get("displacement/chosen_delta"), by.get("displacement/chosen_dropped")
    if chosen is not None and fell is not None:
        sentences[0] = (
            f"Over the last steps before step {steps:,} the chosen responses of the batches stood {chosen.shown} from "
            f"the reference, and {fell.shown} of them below it."
        )
    for claim in claims:
        if claim.key.endswith(f"{_ACCURACY}/end"):
            start = by[claim.key.replace("/end", "/start")]
            sentences.append(f"Right answers on {_set(claim.key)}: {start.shown} before training, {claim.shown} after.")
    plan = run.record.get("plan")
    planned = plan.get("steps") if isinstance(plan, dict) else None
    short = isinstance(planned, int) and steps < planned
    sentences[:0] = _rung(run)
    headline = f"A run that has come to step {steps:,} of {planned:,}." if short else f"A run of {steps:,} steps."
    return Findings(headline, tuple(sentences), tuple(claims))


def _rung(run: Run) -> list[str]:
    """A sentence for each alarm, with the steps at which it began."""
    found: dict[str, list[str]] = {}
    for line in run.metrics:
        for key in line:
            if key.startswith(ALARMS) and _is_real(line.get("step")):
                found.setdefault(key.removeprefix(ALARMS), []).append(f"{int(line['step']):,}")
    return [f"The alarm {name} rang at step {', '.join(steps)}." for name, steps in found.items()]


def training_claims(run: Run) -> list[Claim]:
    """The last values of the metrics, and answers before and after."""
    claims = []
    for name, (label, unit) in _LAST.items():
        values = series(run, name)
        if values:
            claims.append(Claim(name, label, values[-1][1], unit))
    keys = dict.fromkeys(key for line in run.metrics for key in line if key.endswith(_ACCURACY))
    for key in keys:
        values = series(run, key)
        if len(values) > 1:
            for (_, value), when, words in zip(
                (values[0], values[-1]), ("start", "end"), ("before", "after"), strict=True
            ):
                claims.append(Claim(f"{key}/{when}", f"right answers on {_set(key)}, {words}", value, "share"))
    return claims


def series(run: Run, name: str) -> list[tuple[float, float]]:
    """Steps and values of one metric, in order; what is not a number is left out."""
    return [
        (float(line["step"]), float(line[name]))
        for line in run.metrics
        if _is_real(line.get("step")) and _is_real(line.get(name))
    ]


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def _set(key: str) -> str:
    name = key.split("/")[0].removeprefix("eval").removesuffix(_ACCURACY).strip("_")
    return name or "the evaluation set"
