"""Rows -> one batch `[B, R, L]`, padded on the right. Nothing is cut, shifted or decided here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prefopt.data import rows

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Collator:
    """Pads rows to a batch. `pad_id` may be any id, that of the end token too: masks come from lengths.

    Gives, with B rows, R responses (the most that a row has), L tokens of the longest prompt + response and T of the
    longest response: `input_ids`, `attention_mask` int64 `[B, R, L]`; `prompt_lengths` int64 `[B]`; `mask` bool `[B, R,
    T]`, position t being the response's token t; `ids` int64 `[B]`, numbers in the data set; `weight` float32 `[B]`.
    When every row has them: `steps` int64, `weights`, `token_scores` float32 (NaN for a token without one), `diff` bool
    `[B, R, T]`, each with the value of a token that nothing is said of in padding (steps -1, weight 1); `step_rewards`
    float32 `[B, R, S]`, padded with 0; `external`, `deviation`, `reference_sums` float32 `[B, R]`, NaN for what is
    missing; `desirable`
    bool `[B]` (not `labels`: `transformers.Trainer` takes those for token ids), and `mismatched_input_ids`,
    `mismatched_attention_mask` `[B, 1, L']`, `mismatched_mask` `[B, 1, T']` of each prompt with another's response. A
    response that a row does not have is its prompt alone, with an empty mask.
    """

    pad_id: int = 0

    def __call__(self, items: Sequence[Row]) -> dict[str, Tensor]:
        """The batch of these rows, on the CPU."""
        responses = max(len(row[rows.RESPONSES]) for row in items)
        longest = max(len(ids) for row in items for ids in row[rows.RESPONSES])
        whole = [[row[rows.PROMPT_IDS] + ids for ids in _filled(row[rows.RESPONSES], responses, [])] for row in items]
        width = max(len(ids) for row in whole for ids in row)
        batch = {
            "input_ids": _padded(whole, width, self.pad_id, torch.int64),
            # a response that is missing behind an empty prompt attends to one token: to none gives NaN
            "attention_mask": _padded(
                [[[1] * max(len(ids), 1) for ids in row] for row in whole], width, 0, torch.int64
            ),
            "prompt_lengths": torch.tensor([len(row[rows.PROMPT_IDS]) for row in items]),
            "mask": _padded([_filled(row[rows.MASKS], responses, []) for row in items], longest, False, torch.bool),
            "ids": torch.tensor([row.get(rows.INDEX, number) for number, row in enumerate(items)]),
            "weight": torch.tensor([float(row.get(rows.WEIGHT, 1.0)) for row in items]),
        }
        for name, filler in rows.PER_TOKEN.items():
            if _all_have(items, name):
                values = [_filled(row[name], responses, []) for row in items]
                batch[name] = _padded(values, longest, filler, _DTYPES[type(filler)])
        for name, filler in rows.PER_RESPONSE.items():
            if _all_have(items, name):
                batch[name] = _values([_filled(row[name], responses, filler) for row in items])
        if _all_have(items, rows.LABEL):
            batch["desirable"] = torch.tensor([bool(row[rows.LABEL]) for row in items])
        if _all_have(items, rows.MISMATCHED):
            other = self([_with_response(row, row[rows.MISMATCHED]) for row in items])
            batch |= {f"mismatched_{name}": other[name] for name in ("input_ids", "attention_mask", "mask")}
        return batch


def _with_response(row: Row, ids: list[int]) -> Row:
    return {rows.PROMPT_IDS: row[rows.PROMPT_IDS], rows.RESPONSES: [ids], rows.MASKS: [[True] * len(ids)]}


_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float32}


def _values(values: Sequence[Sequence[Any]]) -> Tensor:
    """A number per response, `[B, R]`, or several, `[B, R, S]` padded with 0."""
    if not isinstance(values[0][0], list):
        return torch.tensor(values, dtype=torch.float32)
    most = max(len(each) for row in values for each in row)
    return _padded(values, max(most, 1), 0.0, torch.float32)  # a response may be without steps


def _all_have(items: Sequence[Row], name: str) -> bool:
    return all(row.get(name) is not None for row in items)


def _filled(items: Sequence[Any], length: int, filler: Any) -> list[Any]:
    return [*items, *([filler] * (length - len(items)))]


def _padded(values: Sequence[Sequence[Sequence[Any]]], width: int, pad: Any, dtype: torch.dtype) -> Tensor:
    """`[B, R, *]` ragged in the last dimension -> `[B, R, width]`."""
    return torch.tensor([[[*ids, *([pad] * (width - len(ids)))] for ids in row] for row in values], dtype=dtype)
