"""The records behind tokenized rows: which one each row came from, which were cut, and their text as it was written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from prefopt.data import rows
from prefopt.data.audit import Audit
from prefopt.data.encode import Encoder
from prefopt.data.load import Source, batch_records, cache_directory, first_records, open_table
from prefopt.data.options import DataOptions
from prefopt.data.readers import read_numbered
from prefopt.data.table import Task, code_key, content_key, encoded, tokenizer_key
from prefopt.data.template import template_source
from prefopt.data.tokenize import prepare_rows
from prefopt.errors import DataError

_CUT = frozenset({rows.TRUNCATED_CHOSEN, rows.TRUNCATED_REJECTED, rows.TRUNCATED_PROMPT})
_NAME = "pairs"
_LINES = (".jsonl", ".ndjson")
"""Files whose records are lines, which are copied as they are."""


@dataclass(frozen=True)
class PairRows:
    """Tokenized rows of pairs. Row k came from record `numbers[k]` of all sources together; `cut` holds rows that lost
    tokens to `max_length`.
    """

    sources: tuple[Source, ...]
    table: Any
    audit: Audit
    numbers: Sequence[int] = field(repr=False)
    cut: frozenset[int] = field(repr=False)

    def texts(self) -> Iterator[bytes]:
        """Every record as one line, in order: byte for byte where the source's records are lines, else as JSON."""
        for source in self.sources:
            yield from _lines(source)


def read_pairs(
    sources: Sequence[Source], tokenizer: PreTrainedTokenizerBase, options: DataOptions, *, cache: Path | None = None
) -> PairRows:
    """Rows of every pair in the sources, each record once; what cannot be used is counted, not refused.

    Raises: `DataError` for records that are groups or single responses, and when nothing can be read.
    """
    once = tuple(replace(source, weight=1.0) for source in sources)
    options = replace(options, responses="many", negatives="keep", needs=(), max_lost=1.0)
    for source in once:
        _refuse_other_kinds(source)
    prepared = prepare_rows(once, tokenizer, options, name=_NAME, cache=cache)
    numbers, cut = list[int](), set[int]()
    start = 0
    for lines in _accounts(once, tokenizer, options, cache or cache_directory()):
        for number, (reason, notes) in enumerate(lines, start):
            if reason is None:
                if _CUT.intersection(notes or ()):
                    cut.add(len(numbers))
                numbers.append(number)
        start += len(lines)
    assert len(numbers) == len(prepared.rows)
    return PairRows(once, prepared.rows, prepared.audit, numbers, frozenset(cut))


def _refuse_other_kinds(source: Source) -> None:
    record = next(iter(first_records(source, 1)), {})
    if record.get("chosen") is not None:
        return
    if "responses" in record:
        raise DataError(
            f"{source.path}: its records are groups of scored responses, and a diagnosis compares chosen with rejected "
            "ones. `prefopt data pair` makes pairs of groups."
        )
    if "completion" in record:
        raise DataError(
            f"{source.path}: its records are single responses with labels, and a diagnosis compares chosen with "
            "rejected ones. It has nothing to say of unpaired data."
        )


def _accounts(
    sources: Sequence[Source], tokenizer: PreTrainedTokenizerBase, options: DataOptions, folder: Path
) -> Iterator[list[tuple[str | None, list[str] | None]]]:
    """What became of each record, by source: from the cache that `prepare_rows` has just filled."""
    encoder, identity = Encoder(tokenizer, options), tokenizer_key(tokenizer, template_source(options.chat_template))
    for number, source in enumerate(sources):
        task = Task(encoder, source, f"{_NAME}{number or ''}")
        table = open_table(source, cache=folder)
        key = content_key(table.key, dict(source.columns), identity, options.key(), task.prefix, code_key())
        account = encoded(table, task, key=key, folder=folder).select_columns(["reason", "notes"])
        yield list(zip(account["reason"], account["notes"], strict=True))


def _lines(source: Source) -> Iterator[bytes]:
    path = Path(source.path)
    if path.is_file() and path.suffix in _LINES:
        with path.open("rb") as file:
            for line in file:
                if line.strip():
                    yield line if line.endswith(b"\n") else line + b"\n"
        return
    for record in _records(source, path):
        yield (json.dumps(record, ensure_ascii=False, default=str) + "\n").encode("utf-8", "surrogatepass")


def _records(source: Source, path: Path) -> Iterator[dict[str, Any]]:
    if path.is_file() and path.suffix != ".parquet":
        yield from (record for _, record in read_numbered(path))
        return
    dataset = open_table(source).dataset
    for start in range(0, len(dataset), 1000):
        yield from batch_records(dataset[start : start + 1000])
