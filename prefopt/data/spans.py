"""What is known about a response -> columns of its tokens: the span a token lies in, the numbers that belong to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefopt.data import rows
from prefopt.data.fields import Spans
from prefopt.data.marks import Marks, SpanWeights, TokenValues
from prefopt.data.rejection import RejectedError
from prefopt.data.render import Side
from prefopt.data.tokens import Span, Tokens


@dataclass(frozen=True)
class Places:
    """Where a response's tokens, from number `start` on, and its characters stand in the whole text."""

    tokens: Tokens
    start: int
    side: Side

    def labels(self, spans: Spans) -> list[int]:
        """`span_labels` of the tokens.

        Raises: `RejectedError` for spans that cannot be placed.
        """
        body = self.side.body
        if body is None:
            raise RejectedError(
                rows.BOUNDARY_MISMATCH, "the chat template rewrites the response; its spans cannot be placed"
            )
        if spans and body + spans[-1][1] > len(self.side.text):
            raise RejectedError(rows.BAD_MESSAGE, "a span reaches beyond the end of its response")
        return span_labels(self.tokens.spans(self.start), [(body + first, body + last) for first, last in spans])


def span_labels(tokens: Sequence[Span], spans: Sequence[Span]) -> list[int]:
    """For each token the span that holds its first character, -1 when it lies in none.

    Where its first characters are in no span, such as the space in front of a word, the first one that is decides.
    """
    found, first = [], 0
    for start, end in tokens:
        while first < len(spans) and (spans[first][1] <= start or spans[first][0] == spans[first][1]):
            first += 1
        found.append(first if first < len(spans) and spans[first][0] < end else rows.OUTSIDE)
    return found


def token_columns(mark: Marks, ids: Sequence[int], places: Places, *, added: int | None) -> dict[str, list[Any]]:
    """The columns of `rows.PER_TOKEN` that the marks give, for the tokens of a response and the end token `added`."""
    found: dict[str, list[Any]] = {}
    if mark.steps is not None:
        found[rows.STEPS] = places.labels(mark.steps)
    if mark.diff is not None:
        found[rows.DIFF] = [label != rows.OUTSIDE for label in places.labels(mark.diff)]
    if isinstance(mark.weights, SpanWeights):
        each = [*mark.weights.weights, rows.PER_TOKEN[rows.WEIGHTS]]  # the last for label -1
        found[rows.WEIGHTS] = [each[label] for label in places.labels(mark.weights.spans)]
    if added is not None:
        found = {name: [*values, rows.PER_TOKEN[name]] for name, values in found.items()}
    for name, given in ((rows.WEIGHTS, mark.weights), (rows.TOKEN_SCORES, mark.token_scores)):
        if isinstance(given, TokenValues):
            found[name] = values_of_tokens(given, ids, added, otherwise=rows.PER_TOKEN[name])
    return found


def values_of_tokens(given: TokenValues, ids: Sequence[int], added: int | None, *, otherwise: float) -> list[float]:
    """The numbers of a response's tokens, `otherwise` for an added end token that has none.

    Raises: `RejectedError` when the numbers were made for other tokens.
    """
    closed = [*ids, *([] if added is None else [added])]
    for known in (closed, list(ids)):
        if len(given.values) == len(known) and (given.ids is None or list(given.ids) == known):
            return [*given.values, *([otherwise] * (len(closed) - len(known)))]
    if len(given.values) != len(closed):
        text = f"column '{given.name}' has {len(given.values)} values, and the response has {len(closed)} tokens"
        raise RejectedError(rows.TOKEN_MISMATCH, text)
    theirs = given.ids or ()
    place = next(number for number, (a, b) in enumerate(zip(theirs, closed, strict=True)) if a != b)
    text = f"column '{given.name}' belongs to other tokens: id {theirs[place]} at place {place}, here {closed[place]}"
    raise RejectedError(rows.TOKEN_MISMATCH, text)


def shared_columns(sides: Sequence[Mapping[str, list[Any]]], lengths: Sequence[int]) -> dict[str, list[list[Any]]]:
    """The columns that any response has, one list per response; one without it has the value of an end token."""
    names = [name for name in rows.PER_TOKEN if any(name in side for side in sides)]
    return {
        name: [side.get(name, [rows.PER_TOKEN[name]] * length) for side, length in zip(sides, lengths, strict=True)]
        for name in names
    }


def response_values(marks: Sequence[Marks]) -> dict[str, list[Any]]:
    """The columns of `rows.PER_RESPONSE` that the marks give."""
    found: dict[str, list[Any]] = {}
    rewards = [mark.step_rewards for mark in marks]
    if marks and all(reward is not None for reward in rewards):
        found[rows.STEP_REWARDS] = [list(reward or ()) for reward in rewards]
    for name, values in (
        (rows.EXTERNAL, [mark.external for mark in marks]),
        (rows.DEVIATION, [mark.deviation for mark in marks]),
        (rows.REFERENCE_SUMS, [mark.reference_sums for mark in marks]),
    ):
        if any(value is not None for value in values):
            found[name] = [math.nan if value is None else value for value in values]
    return found
