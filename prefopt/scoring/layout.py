"""A batch `[B, R, L]` as the model sees it: one row per response, or one per prompt with all its responses behind it.

With a shared prefix the prompt is computed once. Each response attends to the prompt and to itself, and its positions
go on where the prompt ends, so every response token sees what it would see in a row of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from prefopt.errors import DataError

Batch = Mapping[str, Tensor]

_PADDING = -1  # segment of a column that holds nothing; 0 is the prompt, r + 1 response r


@dataclass(frozen=True)
class Layout:
    """The batch as the model sees it, and where each response token is predicted.

    `input_ids` `[N, W]`; `attention_mask` int64 `[N, W]`, 1 for a column that holds a token. For each scored token, in
    batch order, `rows` and `columns` `[K]` are the place whose output predicts it, `labels` `[K]` its id; `mask`
    `[B, R, T]` says where they go. No column before `first` predicts a scored token.

    With a shared prefix, `positions` and `segments` int64 `[N, W]` say where in its sequence a column stands and which
    response it belongs to, `position_ids` is the former in the form of `input_ids`, and `span` the number of positions.
    Where the prompts stand in one row without padding, `input_ids` and `attention_mask` are `[1, sum of lengths]`, and
    `pieces` says how long each prompt is, followed by its responses.
    """

    input_ids: Tensor
    attention_mask: Tensor
    rows: Tensor
    columns: Tensor
    labels: Tensor
    mask: Tensor
    first: int = 0
    positions: Tensor | None = None
    segments: Tensor | None = None
    position_ids: Tensor | None = None
    span: int = 0
    pieces: tuple[tuple[int, ...], ...] | None = None

    @property
    def places(self) -> int:
        """Columns that the model computes, padding included."""
        return self.input_ids.numel()

    def packed(self) -> Layout:
        """A shared-prefix layout with the prompts behind one another in one row, without padding.

        `positions` and `segments` stay `[N, W]`, one row per prompt: attention is computed prompt by prompt.
        """
        assert self.segments is not None
        kinds = torch.arange(int(self.segments.max()) + 1, device=self.segments.device)
        pieces = (self.segments.unsqueeze(-1) == kinds).sum(1)  # [N, 1 + R] columns of the prompt and of each response
        lengths = pieces.sum(-1)
        starts = lengths.cumsum(0) - lengths
        assert self.positions is not None
        held = self.attention_mask.bool()
        return replace(
            self,
            input_ids=self.input_ids[held].unsqueeze(0),
            position_ids=self.positions[held].unsqueeze(0),
            attention_mask=self.attention_mask.new_ones(1, int(lengths.sum())),
            rows=torch.zeros_like(self.rows),
            columns=starts[self.rows] + self.columns,
            pieces=tuple(tuple(row) for row in pieces.tolist()),
        )

    def visible(self, window: int | None = None) -> Tensor:
        """Which column sees which, bool `[N, W, W]`, within `window` positions where attention slides.

        A column without a token sees itself: to see nothing gives NaN.
        """
        assert self.positions is not None
        assert self.segments is not None
        query, key = self.segments.unsqueeze(2), self.segments.unsqueeze(1)
        place = torch.arange(self.segments.shape[1], device=query.device)
        seen = ((key == 0) | (key == query)) & (key != _PADDING) & (place <= place.unsqueeze(1))
        if window is not None:  # positions, not columns: a response may stand far behind its prompt
            seen &= self.positions.unsqueeze(2) - self.positions.unsqueeze(1) < window
        return seen | torch.eye(len(place), dtype=torch.bool, device=query.device)

    def block_mask(self, window: int | None = None) -> Any:
        """The same as `visible`, as a block mask for flex attention, which never holds `[N, W, W]`."""
        from torch.nn.attention.flex_attention import create_block_mask

        assert self.positions is not None
        assert self.segments is not None
        positions, segments = self.positions, self.segments

        def seen(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            ours, theirs = segments[row, query], segments[row, key]
            may = ((theirs == 0) | (theirs == ours)) & (theirs != _PADDING) & (key <= query)
            if window is not None:
                may &= positions[row, query] - positions[row, key] < window
            return may | (query == key)

        rows, width = segments.shape
        return create_block_mask(seen, rows, None, width, width, device=str(segments.device))


def padding(batch: Batch, arrangement: str | None) -> tuple[Tensor, Tensor]:
    """Columns of the batch that hold no token, and all of them, as it is arranged: packed, padded or separate."""
    whole, prompt = batch["attention_mask"].sum(-1), batch["prompt_lengths"]  # [B, R], [B]
    if arrangement == "separate":
        columns = whole.bool().sum() * batch["input_ids"].shape[-1]
        return columns - whole.sum(), columns
    tokens = prompt + (whole - prompt.unsqueeze(-1)).clamp(min=0).sum(-1)  # [B]
    columns = tokens.sum() if arrangement == "packed" else tokens.max() * len(tokens)
    return columns - tokens.sum(), columns


def separate(batch: Batch) -> Layout:
    """One row per response, each with its own copy of the prompt. Missing responses get no row."""
    ids, attention, mask = batch["input_ids"], batch["attention_mask"], batch["mask"]
    present = attention.any(-1)  # [B, R]
    _check(batch)
    b, r, t = mask.nonzero(as_tuple=True)  # [K] each
    row_of = (present.flatten().cumsum(0) - 1).view(present.shape)
    columns = batch["prompt_lengths"][b] + t
    return Layout(
        input_ids=ids[present],
        attention_mask=attention[present],
        rows=row_of[b, r],
        columns=columns - 1,  # the output at a position predicts the next token
        labels=ids[b, r, columns],
        mask=mask,
        first=max(int(batch["prompt_lengths"].min()) - 1, 0),
    )


def _check(batch: Batch, *, one_prompt: bool = False) -> None:
    """Raises: `DataError` for a batch whose values would be those of other tokens, with its first such prompt."""
    ids, attention, mask, prompt = (batch[n] for n in ("input_ids", "attention_mask", "mask", "prompt_lengths"))
    tokens = mask.shape[-1]
    last = (mask * torch.arange(1, tokens + 1, device=mask.device)).amax(-1) if tokens else mask.sum(-1)  # [B, R]
    length, place = attention.sum(-1), torch.arange(ids.shape[-1], device=ids.device)
    present, in_prompt = length > 0, place < prompt[:, None, None]  # [B, R], [B, 1, L]
    wrong = [
        mask[..., :1].any(-1).any(-1) & (prompt == 0),
        (attention.bool() != (place < length.unsqueeze(-1))).any(-1).any(-1),
        ((last > 0) & (last > length - prompt.unsqueeze(-1))).any(-1),
    ]
    if one_prompt:
        wrong.append((in_prompt & present.unsqueeze(-1) & (ids != ids[:, :1])).any(-1).any(-1))
    found = torch.stack(wrong)  # [conditions, B]
    if not found.any():
        return
    condition, row = found.nonzero()[0].tolist()
    raise DataError(f"prompt {row} of the batch {_WRONG[condition]}")


_WRONG = (
    "is empty, and nothing predicts the first token of its responses. Put a beginning-of-sequence token into the "
    "prompt, or leave that token out of the mask.",
    "is not padded on the right: attention_mask must be 1 up to the end of each response and 0 behind it.",
    "has a mask that reaches beyond the end of a response.",
    "stands with other tokens before some of its responses. All responses of a prompt have its tokens, or are scored "
    "as prompts of their own.",
)


def shared_prefix(batch: Batch) -> Layout:
    """One row per prompt: `[prompt | response 0 | response 1 | ...]`, without padding between them."""
    ids, prompt, mask = batch["input_ids"], batch["prompt_lengths"], batch["mask"]
    _check(batch, one_prompt=True)
    lengths = (batch["attention_mask"].sum(-1) - prompt.unsqueeze(-1)).clamp(min=0)  # [B, R], 0 for a missing response
    starts = prompt.unsqueeze(-1) + lengths.cumsum(-1) - lengths  # [B, R], first column of each response
    widths = torch.stack([(prompt + lengths.sum(-1)).amax(), (prompt + lengths.amax(-1)).amax(), prompt.amin() - 1])
    width, span, first = widths.tolist()
    place = torch.arange(ids.shape[-1], device=ids.device)

    b, r, t = (place < lengths.unsqueeze(-1)).nonzero(as_tuple=True)  # every response token
    target = (b, starts[b, r] + t)
    row, column = (place < prompt.unsqueeze(-1)).nonzero(as_tuple=True)  # every prompt token
    input_ids = ids.new_zeros(len(ids), max(width, 1))
    positions = torch.zeros_like(input_ids)
    segments = torch.full_like(input_ids, _PADDING)
    for to, token, position, segment in (
        ((row, column), ids[row, 0, column], column, torch.zeros_like(column)),
        (target, ids[b, r, prompt[b] + t], prompt[b] + t, r + 1),
    ):
        input_ids[to], positions[to], segments[to] = token, position, segment

    b, r, t = mask.nonzero(as_tuple=True)  # [K] each, the scored tokens
    before = torch.where(t == 0, prompt[b], starts[b, r] + t) - 1  # the first token is predicted by the prompt's last
    return Layout(
        input_ids=input_ids,
        attention_mask=(segments != _PADDING).long(),
        rows=b,
        columns=before,
        labels=ids[b, r, prompt[b] + t],
        mask=mask,
        first=max(first, 0),
        positions=positions,
        segments=segments,
        position_ids=positions,
        span=max(span, 1),
    )
