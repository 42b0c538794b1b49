"""What a record says about each of its responses beside their text: steps, rewards, weights, scores, differences.

A column is named after the response's own: `chosen_steps` belongs to `chosen`, `rejected_steps` to `rejected`,
`responses_steps` to `responses`. Where that column holds several responses, this one has an entry for each. Values for
tokens come either as a list, one number per token of the response, or with the ids they belong to; they are refused
where ids or lengths differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prefopt.data import fields, rows
from prefopt.data.fields import Spans
from prefopt.data.rejection import RejectedError
from prefopt.errors import DataError

WRONG_BELOW = 0.5
"""A step with a lower reward is a wrong one, for the losses too."""


@dataclass(frozen=True)
class TokenValues:
    """One number per token of a response, with the ids of those tokens when the record has them."""

    name: str
    values: tuple[float, ...]
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class SpanWeights:
    """Weights of character spans; a token outside of them weighs 1."""

    spans: Spans
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Marks:
    """What is known about one response. Spans are characters of the response as it was written."""

    steps: Spans | None = None
    step_rewards: tuple[float, ...] | None = None
    weights: SpanWeights | TokenValues | None = None
    token_scores: TokenValues | None = None
    diff: Spans | None = None
    deviation: float | None = None
    reference_sums: float | None = None
    external: float | None = None

    def moved(self, by: int) -> Marks:
        """The marks of the response without its first characters."""
        if by == 0:
            return self
        weights = self.weights
        if isinstance(weights, SpanWeights):
            weights = replace(weights, spans=_moved(weights.spans, by))
        steps, diff = (None if s is None else _moved(s, by) for s in (self.steps, self.diff))
        return replace(self, steps=steps, diff=diff, weights=weights)


def _moved(spans: Spans, by: int) -> Spans:
    return tuple((max(start - by, 0), max(end - by, 0)) for start, end in spans)


@dataclass(frozen=True)
class Place:
    """Where a response stands in its record: in a column, as number `index` of `of` where the column has several."""

    column: str
    index: int = 0
    of: int = 1

    @property
    def name(self) -> str:
        return self.column if self.of == 1 else f"{self.column}[{self.index}]"

    def value(self, record: Mapping[str, Any], name: str) -> Any:
        """This response's entry of a column that belongs to the response's own."""
        value = fields.parsed(record.get(name), name)
        if value is None or self.of == 1:
            return value
        if not isinstance(value, list) or len(value) != self.of:
            text = f"column '{name}' must be a list with an entry for each of the {self.of} in '{self.column}'"
            raise RejectedError(rows.BAD_MESSAGE, text)
        return fields.parsed(value[self.index], name)


def read_marks(record: Mapping[str, Any], places: Sequence[Place], needs: Sequence[str] | None) -> tuple[Marks, ...]:
    """The marks of each response, external scores excepted. With `needs` only the columns of those are read."""
    wanted = rows.marks_read(needs)
    found = [Marks(**{what: _read(record, place, what) for what in wanted}) for place in places]
    if rows.STEP_REWARDS in wanted:
        found = _with_first_error(record, places, found)
        for place, mark in zip(places, found, strict=True):
            _check_steps(place, mark)
    for name in (rows.STEPS, rows.STEP_REWARDS, rows.DIFF):  # of one response alone they say nothing
        if any(getattr(mark, name) is None for mark in found):
            found = [replace(mark, **{name: None}) for mark in found]
    return tuple(found)


def check_needs(marks: Sequence[Marks], needs: Sequence[str], *, labelled: bool) -> None:
    """Raises: `RejectedError` for a row that lacks what the loss reads beside the responses, `DataError` for one
    without the reference's sums, which nothing may leave out unseen.
    """
    for need in needs:
        if need == rows.LABELS:
            missing = not labelled
        elif need == rows.DIFF:  # two responses can be compared by their ids
            missing = len(marks) != 2 and any(mark.diff is None for mark in marks)
        elif need in (rows.WEIGHTS, rows.TOKEN_SCORES):  # of one side alone they say something
            missing = all(getattr(mark, need) is None for mark in marks)
        elif need == rows.DEVIATION:  # that of the chosen response is read
            missing = marks[0].deviation is None
        else:
            missing = any(getattr(mark, need) is None for mark in marks)
        if missing and need == rows.REFERENCE_SUMS:
            text = f"the row has no {rows.NEEDED[need].words} for each of its responses ({rows.NEEDED[need].where})"
            raise DataError(f"{text}, and reference.cache is columns. Fill them in, or write `cache: auto`.")
        if missing:
            text = f"the loss reads {rows.NEEDED[need].words}, and the row has none ({rows.NEEDED[need].where})"
            raise RejectedError(rows.NULL_FIELD, text)


def _read(record: Mapping[str, Any], place: Place, what: str) -> Any:
    if what == rows.DIFF and place.of > 1:
        return None  # a difference from which of them?
    name = rows.column_of(place.column, what)
    value = place.value(record, name)
    return None if value is None else _READERS[what](value, name)


def _with_first_error(record: Mapping[str, Any], places: Sequence[Place], found: list[Marks]) -> list[Marks]:
    """`first_error_step` k as step rewards: 1 for right steps, 0 from step k of the rejected response on.

    Beside given rewards it must name the first step with a reward below one half.
    """
    if record.get(rows.FIRST_ERROR) is None or places[0].column != "chosen":
        return found
    made = [_right_steps(found[0])]
    for place, mark in zip(places[1:], found[1:], strict=True):
        error = place.value(record, rows.FIRST_ERROR)
        if error is not None and mark.steps is not None:
            mark = _wrong_from(fields.whole(error, rows.FIRST_ERROR), mark)
        made.append(mark)
    return made


def _right_steps(mark: Marks) -> Marks:
    if mark.step_rewards is not None or mark.steps is None:
        return mark
    return replace(mark, step_rewards=(1.0,) * len(mark.steps))


def _wrong_from(error: int, mark: Marks) -> Marks:
    count = len(mark.steps or ())
    if not 1 <= error <= count:
        text = f"column '{rows.FIRST_ERROR}' is {error}, and the rejected response has {count} steps; it counts from 1"
        raise RejectedError(rows.STEP_MISMATCH, text)
    if mark.step_rewards is None:
        return replace(mark, step_rewards=(1.0,) * (error - 1) + (0.0,) * (count - error + 1))
    first = next((number for number, reward in enumerate(mark.step_rewards, 1) if reward < WRONG_BELOW), None)
    if first != error:
        text = (
            f"column '{rows.FIRST_ERROR}' is {error}, and the first step with a reward below {WRONG_BELOW} is {first}"
        )
        raise RejectedError(rows.STEP_MISMATCH, text)
    return mark


def _check_steps(place: Place, mark: Marks) -> None:
    rewards, steps = mark.step_rewards, mark.steps
    if rewards is None or (steps is not None and len(steps) == len(rewards)):
        return
    has = "no steps are given" if steps is None else f"it has {len(steps)} steps"
    raise RejectedError(rows.STEP_MISMATCH, f"'{place.name}' has {len(rewards)} step rewards, and {has}")


# ------------------------------------------------------------------------------------------------------------ columns


def _numbers(value: Any, name: str) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise RejectedError(rows.BAD_MESSAGE, f"column '{name}' must be a list of numbers; got {type(value).__name__}")
    return tuple(fields.number(item, name) for item in value)


def _token_values(value: Any, name: str, key: str) -> TokenValues:
    if not isinstance(value, Mapping):
        return TokenValues(name, _numbers(value, name))
    if set(value) != {"ids", key}:
        text = f"column '{name}' must be a list of numbers, or a mapping with 'ids' and '{key}'"
        raise RejectedError(rows.BAD_MESSAGE, f"{text}; it has {', '.join(map(repr, sorted(value))) or 'nothing'}")
    ids, values = value["ids"], _numbers(value[key], name)
    if not isinstance(ids, list) or len(ids) != len(values):
        raise RejectedError(rows.TOKEN_MISMATCH, f"column '{name}' must have as many '{key}' as 'ids'")
    return TokenValues(name, values, tuple(fields.whole(i, name) for i in ids))


def _token_scores(value: Any, name: str) -> TokenValues:
    found = _token_values(value, name, "scores")
    if not all(0 <= score <= 1 for score in found.values):
        raise RejectedError(rows.BAD_MESSAGE, f"column '{name}' must hold scores between 0 and 1")
    return found


def _weights(value: Any, name: str) -> SpanWeights | TokenValues:
    spans = isinstance(value, list) and bool(value) and all(isinstance(item, list) for item in value)
    found: SpanWeights | TokenValues
    if spans:
        if any(len(item) != 3 for item in value):
            raise RejectedError(rows.BAD_MESSAGE, f"column '{name}' must hold spans as [start, end, weight]")
        weights = tuple(fields.number(item[2], name) for item in value)
        found = SpanWeights(fields.spans([item[:2] for item in value], name), weights)
    else:
        found = _token_values(value, name, "weights")
    if any(weight < 0 for weight in (found.weights if isinstance(found, SpanWeights) else found.values)):
        raise RejectedError(rows.BAD_MESSAGE, f"column '{name}' holds a weight below 0")
    return found


def _deviation(value: Any, name: str) -> float:
    found = fields.number(value, name)
    if found < 0:
        raise RejectedError(rows.BAD_MESSAGE, f"column '{name}' must be at least 0; got {found:g}")
    return found


def _log_probability(value: Any, name: str) -> float:
    found = fields.number(value, name)
    if found > 0:
        raise RejectedError(rows.BAD_MESSAGE, f"column '{name}' must be at most 0, in nats; got {found:g}")
    return found


_READERS = {
    rows.STEPS: fields.spans,
    rows.STEP_REWARDS: _numbers,
    rows.WEIGHTS: _weights,
    rows.TOKEN_SCORES: _token_scores,
    rows.DIFF: fields.spans,
    rows.DEVIATION: _deviation,
    rows.REFERENCE_SUMS: _log_probability,
}
