"""Whether what a recipe wants watched during training is measured at all."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from prefopt.config.sections import AlarmSection, SafetySection
from prefopt.config.written import Written
from prefopt.errors import Problem
from prefopt.losses import Objective
from prefopt.scores import Need

PROBED = ("chosen_below_start", "squeezing")
"""Alarms that read the probe set."""


def probing_acts(written: Written) -> Iterator[Problem]:
    if written.get("diagnostics", "probes") == 0 and written.has("diagnostics", "every"):
        yield Problem("diagnostics.every has no effect without probes. Leave it out.", ("diagnostics", "every"))


def alarms_are_measured(written: Written, objective: Objective) -> Iterator[Problem]:
    for number, alarm in enumerate(_alarms(written)):
        place = ("safety", "alarms", number)
        if alarm.name in PROBED and written.get("diagnostics", "probes") == 0:
            yield Problem(f"alarm '{alarm.name}' reads the probe set, and diagnostics.probes is 0.", place)
        if objective.responses != "single":
            continue
        if alarm.name == "runaway_margins":
            yield Problem(f"alarm 'runaway_margins' reads margins of pairs; loss '{objective.name}' has none.", place)
        if alarm.name == "squeezing" and Need.LABELS not in objective.needs:
            yield Problem(f"alarm 'squeezing' needs rejected responses; loss '{objective.name}' reads none.", place)


def _alarms(written: Written) -> tuple[AlarmSection, ...]:
    """The alarms of a section that could be read; nothing where it could not, which is told elsewhere."""
    value = written.get("safety")
    try:
        return SafetySection.model_validate(value or {}).alarms
    except ValidationError:
        return ()


WATCH_RULES = (probing_acts, alarms_are_measured)
