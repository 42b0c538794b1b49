"""Reward-augmented relabelling (arXiv:2410.08067): one scored pair becomes two, each under the score it aims at."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

INSTRUCTION = "Answer with a quality of {goal} on a scale from 1 to 10."


def reward_augment(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Two rows with a `goal`: the higher score keeps the order, under the lower one the lower-scored response is right.

    Equal scores give none: their rows would contradict each other. Raises: `ValueError` without two scores.
    """
    high, low = (_score(record, name) for name in ("score_chosen", "score_rejected"))
    if high == low:
        return
    yield {**deepcopy(dict(record)), "goal": high}
    swapped = {"chosen": record["rejected"], "rejected": record["chosen"], "score_chosen": low, "score_rejected": high}
    yield {**deepcopy(dict(record)), **deepcopy(swapped), "goal": low}


def with_goal(prompt: str | list[dict[str, Any]], goal: float, instruction: str = INSTRUCTION) -> list[dict[str, Any]]:
    """The prompt as messages that begin with a system message about the goal; the given messages are not touched.

    Whole numbers are written without a decimal point. A system message that is there gets the goal as its last line.
    """
    said = instruction.format(goal=f"{goal:g}")
    turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else deepcopy(prompt)
    if turns and turns[0].get("role") == "system":
        turns[0]["content"] = f"{turns[0]['content']}\n{said}"
        return turns
    return [{"role": "system", "content": said}, *turns]


def _score(record: Mapping[str, Any], name: str) -> float:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"'{name}' must be a number; got {value!r}.")
    return float(value)
