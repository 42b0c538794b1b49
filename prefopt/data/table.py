"""The records of one source as a table of tokenized rows, made by several processes when there are many, and cached.

The table holds a line for every record, those without a row included, so that the account of a cached table is
complete. It is stored under a name made from everything that decides it: records, tokenizer, options, and this
package's code.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, Features, List, Value
from transformers import PreTrainedTokenizerBase

from prefopt.data import rows
from prefopt.data.encode import EncodedRow, Encoder, Rejection
from prefopt.data.load import Source, Table, batch_records
from prefopt.data.readers import Record

_BATCH = 256
"""Records in memory at a time, per process."""

_ROWS_PER_PROCESS = 10_000
"""Fewer records than this do not pay for a further process."""

_MOST_PROCESSES = 16

ROW = {
    rows.ID: Value("string"),
    rows.PROMPT_IDS: List(Value("int32")),
    rows.RESPONSES: List(List(Value("int32"))),
    rows.MASKS: List(List(Value("bool"))),
    rows.LENGTH: Value("int32"),
    rows.ANSWER: Value("string"),
    rows.LABEL: Value("bool"),
    rows.STEPS: List(List(Value("int32"))),
    rows.STEP_REWARDS: List(List(Value("float32"))),
    rows.WEIGHTS: List(List(Value("float32"))),
    rows.TOKEN_SCORES: List(List(Value("float32"))),
    rows.DIFF: List(List(Value("bool"))),
    rows.EXTERNAL: List(Value("float32")),
    rows.DEVIATION: List(Value("float32")),
    rows.REFERENCE_SUMS: List(Value("float64")),
    rows.EXTRA: Value("large_string"),
}
ACCOUNT = {
    "reason": Value("string"),
    "detail": Value("string"),
    "notes": List(Value("string")),
    "moved": Value("int32"),
    "lengths": List(Value("int32")),
    "has": List(Value("string")),
    "columns": List(Value("string")),
}
"""What the audit reads of a tokenized record; `columns` are those of the whole batch, on its first row."""


@dataclass(frozen=True)
class Task:
    """Encodes the records of one source; `prefix` begins the ids of those without one."""

    encoder: Encoder
    source: Source
    prefix: str

    @property
    def read_columns(self) -> frozenset[str]:
        """Columns of a record that these options read."""
        return rows.read_columns(self.encoder.options.needs)

    def __call__(self, batch: Mapping[str, list[Any]], numbers: Sequence[int]) -> dict[str, list[Any]]:
        """Columns of `ROW` and `ACCOUNT` for a batch of records."""
        records = [self.source.renamed(record) for record in batch_records(batch)]
        names = [_name(record, f"{self.prefix}-{number:06d}") for record, number in zip(records, numbers, strict=True)]
        lines: list[dict[str, Any]] = []
        known = [
            name if record.get("id") in (None, "") else f"{name} (record {number + 1})"
            for name, record, number in zip(names, records, numbers, strict=True)
        ]
        for record, name, found in zip(records, names, self.encoder.encode(records, known), strict=True):
            for number, row in enumerate(found, start=1):
                lines.append(_line(row, record, name if len(found) == 1 else f"{name}#{number}", self.read_columns))
        lines[0]["columns"] = sorted({c for record in records for c, value in record.items() if value is not None})
        return {column: [line.get(column) for line in lines] for column in (*ROW, *ACCOUNT)}


def _name(record: Record, otherwise: str) -> str:
    given = record.get("id")
    return otherwise if given is None or given == "" else _clean(str(given))


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # a lone surrogate cannot be stored


def _line(row: EncodedRow | Rejection, record: Record, name: str, read: frozenset[str]) -> dict[str, Any]:
    if isinstance(row, Rejection):
        return {rows.ID: name, "reason": row.reason, "detail": _clean(row.detail)}
    values = {
        rows.ANSWER: None if row.answer is None else _clean(row.answer),
        rows.LABEL: row.label,
        **row.tokens,
        **row.values,
        rows.EXTRA: _extra(record, read),
    }
    return values | {
        rows.ID: name,
        rows.PROMPT_IDS: row.prompt_ids,
        rows.RESPONSES: row.responses,
        rows.MASKS: row.masks,
        rows.LENGTH: row.length,
        "notes": list(row.notes),
        "moved": row.moved,
        "lengths": [len(row.prompt_ids), *map(len, row.responses)],
        "has": [column for column, value in values.items() if value is not None],
    }


def _extra(record: Record, read: frozenset[str]) -> str | None:
    """Columns that are not read, as JSON text, for reports and for what reads them later."""
    kept = {
        name: value
        for name, value in record.items()
        if value is not None and name not in read and name not in rows.ALIASES
    }
    return json.dumps(kept, default=str) if kept else None


def encoded(table: Table, task: Task, *, key: str, folder: Path) -> Dataset:
    """The tokenized records of a source, columns `ROW` and `ACCOUNT`; from the cache when `key` is there."""
    folder.mkdir(parents=True, exist_ok=True)
    processes = task.encoder.options.num_proc or min(_MOST_PROCESSES, _cores(), len(table) // _ROWS_PER_PROCESS)
    with _bars_on_terminals():
        return table.dataset.map(
            task,
            with_indices=True,
            batched=True,
            batch_size=_BATCH,
            remove_columns=table.dataset.column_names,
            features=Features(ROW | ACCOUNT),
            num_proc=processes if processes > 1 else None,
            new_fingerprint=key,
            cache_file_name=str(folder / f"rows-{key}.arrow"),
            load_from_cache_file=datasets.is_caching_enabled(),
            desc=f"tokenizing {task.prefix}",
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _bars_on_terminals() -> Iterator[None]:
    """No progress bars where nobody watches them move."""
    if sys.stderr.isatty() or datasets.are_progress_bars_disabled():
        yield
        return
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.enable_progress_bars()


def tokenizer_key(tokenizer: PreTrainedTokenizerBase, template: str | None) -> str:
    """What of a tokenizer decides ids: vocabulary and rules, special tokens, chat template, library versions."""
    if tokenizer.is_fast:
        text = tokenizer.backend_tokenizer.to_str()
        vocabulary = text[
            text.index('"added_tokens"') :
        ]  # what stands before it, padding and truncation, is a passing state
    else:
        vocabulary = str(sorted(tokenizer.get_vocab().items())) + str(sorted(tokenizer.init_kwargs.items(), key=str))
    libraries = [version(package) for package in ("tokenizers", "transformers")]
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    return content_key(vocabulary, special, template or tokenizer.chat_template, libraries)


@cache
def code_key() -> str:
    """The code of this package: rows made by another version of it are made anew."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def content_key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]
