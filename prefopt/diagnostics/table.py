"""The table of pairs: its columns, and writing it as Parquet and JSON lines a piece at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from transformers import PreTrainedTokenizerBase

from prefopt.data import rows
from prefopt.diagnostics.items import PairRecord

PARQUET, LINES = "pairs.parquet", "pairs.jsonl"

_WHOLE, _REAL, _TEXT, _TRUTH = pa.int32(), pa.float64(), pa.large_string(), pa.bool_()

SCORES = ("ches", "ln_ches", "cosine", "last_inner_product")
PAIR = {
    "id": _TEXT,
    "rejected_index": _WHOLE,
    **dict.fromkeys(SCORES, _REAL),
    "chosen_tokens": _WHOLE,
    "rejected_tokens": _WHOLE,
    "length_gap": _WHOLE,
    "edit_distance": _REAL,
    "common_prefix": _WHOLE,
    "flag": _TEXT,
}
MOVEMENT = {
    "chosen_start": _REAL,
    "chosen_now": _REAL,
    "rejected_start": _REAL,
    "rejected_now": _REAL,
    "chosen_delta": _REAL,
    "rejected_delta": _REAL,
    "chosen_delta_per_token": _REAL,
    "rejected_delta_per_token": _REAL,
    "quadrant": _TEXT,
    "greedy_start": _REAL,
    "greedy_now": _REAL,
    "greedy_held": _REAL,
    "branch_position": _WHOLE,
    "branch_chosen": _TEXT,
    "branch_rejected": _TEXT,
    "branch_chosen_start": _REAL,
    "branch_chosen_now": _REAL,
    "branch_rejected_start": _REAL,
    "branch_rejected_now": _REAL,
    "branch_other_start": _REAL,
    "branch_other_now": _REAL,
    "branch_greedy_start": _TEXT,
    "branch_greedy_now": _TEXT,
    "branch_greedy_probability_start": _REAL,
    "branch_greedy_probability_now": _REAL,
    "branch_gainer": _TEXT,
    "branch_gain": _REAL,
    "branch_gainer_is_third": _TRUTH,
}
"""Columns of a diagnosis after training; null where a pair has no branch point."""

TEXTS = {"prompt": _TEXT, "chosen": _TEXT, "rejected": _TEXT}

_TOKENS = ("branch_chosen", "branch_rejected", "branch_greedy_start", "branch_greedy_now", "branch_gainer")
"""Columns that hold a token's id until they are written as its text."""


def columns(*, moved: bool) -> dict[str, pa.DataType]:
    """Columns of the table and their types, in order."""
    return {**PAIR, **(MOVEMENT if moved else {}), **TEXTS}


def token_texts(record: PairRecord, tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """The text of each token that a record names by its id."""
    return {name: tokenizer.decode([record[name]]) for name in _TOKENS if record.get(name) is not None}


class PairTable:
    """Writes the table into a folder, both files whole or not at all."""

    def __init__(self, folder: Path, tokenizer: PreTrainedTokenizerBase, *, moved: bool) -> None:
        self.folder, self.tokenizer = folder, tokenizer
        self.schema = pa.schema(list(columns(moved=moved).items()))
        self._names = {name: folder / f".{name}.unfinished" for name in (PARQUET, LINES)}

    def __enter__(self) -> PairTable:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lines = self._names[LINES].open("w", encoding="utf-8")
        self._parquet = pq.ParquetWriter(self._names[PARQUET], self.schema)
        return self

    def add(self, window: Sequence[dict[str, Any]], records: Sequence[PairRecord], *, start: int) -> list[PairRecord]:
        """Write the records of a window of rows, `start` being the number of its first; gives back what was written."""
        written = [self._line(window[record["row"] - start], record) for record in records]
        self._lines.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in written)
        if written:
            self._parquet.write_table(pa.Table.from_pylist(written, schema=self.schema))
        return written

    def _line(self, row: dict[str, Any], record: PairRecord) -> PairRecord:
        found = {**record, "id": row[rows.ID], "flag": ",".join(record["flags"])}
        found |= token_texts(record, self.tokenizer)
        responses = row[rows.RESPONSES]
        found["prompt"] = self.tokenizer.decode(row[rows.PROMPT_IDS])
        for name, place in (("chosen", 0), ("rejected", record["rejected_index"] + 1)):
            found[name] = self.tokenizer.decode(responses[place], skip_special_tokens=True)
        return {name: found.get(name) for name in self.schema.names}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()
        self._parquet.close()
        for name, path in self._names.items():
            if kind is None:
                os.replace(path, self.folder / name)
            else:
                path.unlink(missing_ok=True)
