"""Parquet in and out, in pieces. Needs pyarrow, which comes with the training stack (`datasets`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_tools.errors import DataToolsError

if TYPE_CHECKING:
    from data_tools.reading import Item, Record

ROWS = 2000
"""How many rows are held at a time."""


def scan_parquet(path: Path, *, skip: int = 0) -> Iterator[Item]:
    """The rows of a Parquet file with their numbers, from 1."""
    arrow, parquet = _arrow()
    try:
        with parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=ROWS):
                if number + batch.num_rows <= skip:
                    number += batch.num_rows
                    continue
                for record in batch.to_pylist():
                    number += 1
                    if number > skip:
                        yield number, record
    except (OSError, arrow.ArrowException) as error:
        raise DataToolsError(f"{path}: cannot be read as Parquet: {error}") from error


def parquet_from_lines(lines: Path, path: Path) -> None:
    """A file of JSON lines as Parquet. The columns' types are those that fit all rows.

    Raises: `DataToolsError` for a column whose values have no common type.
    """
    arrow, parquet = _arrow()
    try:
        schema = arrow.unify_schemas(
            [arrow.Table.from_pylist(rows).schema for rows in _chunks(lines)] or [arrow.schema([])],
            promote_options="permissive",
        )
        with parquet.ParquetWriter(path, schema) as writer:
            for rows in _chunks(lines):
                writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
    except arrow.ArrowException as error:
        raise DataToolsError(f"{path}: the rows do not fit into one table ({error}). Write .jsonl instead.") from error


def _chunks(lines: Path) -> Iterable[list[Record]]:
    with lines.open(encoding="utf-8") as file:
        while rows := [json.loads(line) for line in islice(file, ROWS)]:
            yield rows


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise DataToolsError("Parquet files need pyarrow: pip install pyarrow. JSON lines need nothing.") from error
    return pyarrow, parquet
