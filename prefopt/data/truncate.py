"""What becomes of a row that is longer than `max_length`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefopt.data import rows
from prefopt.data.encoded import EncodedRow
from prefopt.data.options import DataOptions
from prefopt.data.rejection import RejectedError
from prefopt.errors import DataError


def fitted(row: EncodedRow, options: DataOptions, *, bos_id: int | None) -> EncodedRow:
    """The row within `max_length`, by the policy of `options.truncate`.

    Raises: `RejectedError` when it cannot be kept, `DataError` under the policy `error`.
    """
    limit = options.max_length
    if limit is None or row.length <= limit:
        return row
    size = f"{row.length} tokens, the prompt {len(row.prompt_ids)} of them; data.max_length is {limit}"
    if options.truncate == "error":
        raise DataError(f"{size}. `data.truncate: drop`, `response` or `prompt_start` says what to do with such rows.")
    if options.truncate == "prompt_start":
        return _without_start(row, limit, bos_id, size)
    if len(row.prompt_ids) >= limit:
        raise RejectedError(rows.PROMPT_TOO_LONG, size)
    if options.truncate == "drop":
        raise RejectedError(rows.TOO_LONG, size)
    return _without_ends(row, limit - len(row.prompt_ids), options)


def _without_start(row: EncodedRow, limit: int, bos_id: int | None, size: str) -> EncodedRow:
    """The prompt cut at its beginning; a BOS stays in front, and at least one token of the prompt stays."""
    bos = row.prompt_ids[:1] if bos_id is not None and row.prompt_ids[:1] == [bos_id] else []
    room = limit - max(map(len, row.responses)) - len(bos)
    if room < 1:
        raise RejectedError(rows.TOO_LONG, f"{size}; a response alone leaves no room for the prompt's end")
    return replace(row, prompt_ids=bos + row.prompt_ids[-room:]).noted(rows.TRUNCATED_PROMPT)


def _without_ends(row: EncodedRow, room: int, options: DataOptions) -> EncodedRow:
    """Responses cut at their end. An end token that is cut off comes back only when `eos_on_cut` asks for it."""
    cut = [len(ids) > room for ids in row.responses]
    responses, masks = [], []
    tokens: dict[str, list[list[Any]]] = {name: [] for name in row.tokens}
    for r, ids in enumerate(row.responses):
        end = row.ends[r]
        close = [end] if cut[r] and options.eos_on_cut and end is not None else []
        keep = min(len(ids), room) - len(close) * cut[r]
        responses.append(ids[:keep] + close)
        masks.append(row.masks[r][:keep] + [True] * len(close))
        for name, values in row.tokens.items():
            tokens[name].append(values[r][:keep] + [rows.PER_TOKEN[name]] * len(close))
        if not any(masks[-1][:keep]):
            raise RejectedError(
                rows.NO_ANSWER_LEFT, f"{room} tokens are left for the response, and none of them is scored"
            )
    notes = [rows.TRUNCATED_CHOSEN] * cut[0] + [rows.TRUNCATED_REJECTED] * any(cut[1:])
    notes += [rows.END_LOST_ONE_SIDE] * (len(cut) > 1 and not all(cut))
    shorter = replace(row, responses=responses, masks=masks, tokens=tokens).noted(*notes)
    return shorter.distinct(rows.IDENTICAL_CUT)
