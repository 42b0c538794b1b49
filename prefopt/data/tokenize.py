"""Sources -> tokenized rows and their account. Rows are final: what is cut, closed or left out is decided here."""

from __future__ import annotations

import hashlib
import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset, Value, concatenate_datasets
from transformers import PreTrainedTokenizerBase

from prefopt.data import rows
from prefopt.data.audit import Audit, Tally, missing_column
from prefopt.data.encode import EncodedRow, Encoder, Rejection, encode_prompt, encode_row
from prefopt.data.load import Source, cache_directory, open_table
from prefopt.data.options import DataOptions
from prefopt.data.table import ACCOUNT, ROW, Task, code_key, content_key, encoded, tokenizer_key
from prefopt.data.template import template_source
from prefopt.errors import DataError

__all__ = [
    "DataOptions",
    "EncodedRow",
    "Encoder",
    "Prepared",
    "Rejection",
    "encode_prompt",
    "encode_row",
    "prepare_rows",
]

logger = logging.getLogger(__name__)

_WARNED = {
    rows.BOS_IN_TEXT,
    rows.FIRST_TOKEN_UNSCORED,
    rows.NO_END_TOKEN,
    rows.SCORES_IGNORED,
    rows.KEPT_EMPTY,
    rows.DUPLICATE_ID,
    rows.UNKNOWN_TOKENS,
}


@dataclass(frozen=True)
class Prepared:
    """Tokenized rows, with the columns of `rows.Row`, and what became of the records."""

    rows: Dataset
    audit: Audit


def prepare_rows(
    sources: Sequence[Source],
    tokenizer: PreTrainedTokenizerBase,
    options: DataOptions,
    *,
    seed: int = 0,
    name: str = "train",
    cache: Path | None = None,
) -> Prepared:
    """The rows of one data set, from all its sources.

    `seed` draws rows of sources with a fractional weight; `name` begins the ids of records without one. Rows are kept
    under `cache`, by default in the cache of `datasets`; a second call with the same content finds them there.
    Raises: `DataError` when a source cannot be read, when rows need what they do not have (a chat template, one
    rejected response), and when more than `options.max_lost` of the rows, or all of them, cannot be used.
    """
    if not sources:
        raise DataError(f"{name}: there is no source of records.")
    encoder, folder = Encoder(tokenizer, options), cache or cache_directory()
    identity = tokenizer_key(tokenizer, template_source(options.chat_template))
    parts = []
    for number, source in enumerate(sources):
        task = Task(encoder, source, f"{name}{number or ''}")
        table = open_table(source, cache=folder)
        key = content_key(table.key, dict(source.columns), identity, options.key(), task.prefix, code_key())
        parts.append(_Part(source, encoded(table, task, key=key, folder=folder), key, table.skipped))
    prepared = _joined(parts, encoder, name=name, seed=seed)
    prepared.audit.check(max_lost=options.max_lost)
    report(prepared.audit)
    return prepared


def report(audit: Audit) -> None:
    """Say in the log what became of the records."""
    for line in audit.lines():
        logger.info(line)
    for note in sorted(_WARNED & audit.notes.keys()):
        logger.warning("%s: %d %s (%s)", audit.name, audit.notes[note], rows.NOTES[note], ", ".join(audit.noted[note]))


@dataclass(frozen=True)
class _Part:
    """The tokenized records of one source."""

    source: Source
    table: Dataset
    key: str
    skipped: tuple[str, ...]


def _joined(parts: Sequence[_Part], encoder: Encoder, *, name: str, seed: int) -> Prepared:
    """The rows that can be used, each source as often as its weight says, and the account of all.

    Raises: `DataError` for a weight that leaves a source without rows.
    """
    tally, chosen, described, problems = Tally(), [], [], list[str]()
    ids = unique([id_ for part in parts for id_ in part.table[rows.ID]], tally)
    start = 0
    for number, part in enumerate(parts):
        mine = ids[start : (start := start + len(part.table))]
        kept = _count(part, mine, tally)
        used = drawn(kept, part.source.weight, seed=f"{seed}/{number}")
        if kept and not used:
            problems.append(
                f"{part.source.path}: the weight {part.source.weight} draws none of the {len(kept)} rows that can be "
                f"used; {1 / len(kept):.2g} draws one."
            )
        chosen.append(_selected(part.table, mine, used))
        described.append(
            {"path": part.source.path, "weight": part.source.weight, "records": len(mine), "rows_per_epoch": len(used)}
        )
    if problems:
        raise DataError(*problems)
    found = concatenate_datasets(chosen)
    audit = tally.audit(
        name=name,
        sources=described,
        fingerprint=fingerprint(found),
        rules=encoder.rules,
        read=rows.read_columns(encoder.options.needs),
    )
    return Prepared(found.select_columns([c for c in ROW if c in rows.ALWAYS or c in tally.has]), audit)


def _count(part: _Part, ids: Sequence[str], tally: Tally) -> list[int]:
    """Add a source to the account; which of its rows can be used."""
    kept: list[int] = []
    columns = set(part.skipped)
    account = part.table.select_columns(list(ACCOUNT))
    for start in range(0, len(account), 1000):
        batch = account[start : start + 1000]
        tally.add(batch, ids[start : start + 1000])
        kept += [start + i for i, reason in enumerate(batch["reason"]) if reason is None]
        columns.update(column for names in batch["columns"] for column in names or ())
    missing = [theirs for ours, theirs in part.source.columns.items() if ours not in columns]
    if missing:
        raise DataError(*(f"{part.source.path}: {missing_column(theirs, columns)}" for theirs in missing))
    tally.columns |= columns
    return kept


def _selected(table: Dataset, ids: Sequence[str], used: Sequence[int]) -> Dataset:
    table = table.remove_columns(list(ACCOUNT))
    if any(a != b for a, b in zip(ids, table[rows.ID], strict=True)):
        table = table.remove_columns(rows.ID).add_column(rows.ID, list(ids), feature=Value("string"))
    return table if list(used) == list(range(len(table))) else table.select(used)


def drawn(kept: Sequence[int], weight: float, *, seed: str) -> list[int]:
    """Rows of a source for one epoch: each as often as the whole part of its weight, and a drawn share for the rest."""
    whole = int(weight)
    rest = round((weight - whole) * len(kept))
    return [*(list(kept) * whole), *sorted(random.Random(seed).sample(list(kept), rest))]


def unique(ids: Sequence[str], tally: Tally) -> list[str]:
    """The ids, those that were taken already with a number behind them: `a`, `a-2`, `a-3`."""
    given, taken, times = set(ids), set[str](), Counter[str]()
    found = []
    for id_ in ids:
        name = id_
        while name in taken:
            times[id_] += 1
            name = f"{id_}-{times[id_] + 1}"
            if name in given:
                name = id_
        taken.add(name)
        found.append(name)
        if name != id_:
            tally.note(rows.DUPLICATE_ID, name)
    return found


def fingerprint(dataset: Dataset) -> str:
    """A name for the content of rows: their ids, masks and labels in order, however they came about."""
    digest = hashlib.sha256()
    columns = [
        c
        for c in (rows.PROMPT_IDS, rows.RESPONSES, rows.MASKS, *rows.PER_TOKEN, *rows.PER_RESPONSE, rows.LABEL)
        if c in dataset.features
    ]
    for batch in dataset.select_columns(columns).with_format("arrow").iter(1000):
        for column in columns:
            _digest(batch[column].combine_chunks(), digest)
    return digest.hexdigest()[:32]


def _digest(array: pa.Array, digest: Any) -> None:
    while pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        digest.update(array.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False).tobytes())
        array = array.flatten()
    digest.update(array.cast(pa.float64()).to_numpy(zero_copy_only=False).tobytes())
