"""Parquet in and out, in pieces. Needs pyarrow, which comes with the training stack (`datasets`)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, time
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_tools.errors import DataToolsError
from data_tools.reading import NUL, Unreadable, has_character

if TYPE_CHECKING:
    from data_tools.reading import Item, Record

ROWS = 2000
"""How many rows are held at a time."""


def scan_parquet(path: Path, *, skip: int = 0) -> Iterator[Item]:
    """The rows of a Parquet file with their numbers, from 1, as JSON has them.

    Dates and times become ISO 8601 text, bytes their UTF-8 text, decimals numbers (or text, where no number is
    exactly that), NaN null. A row with anything else that JSON has not is `Unreadable`, and its column is named.

    Raises: `DataToolsError` for a file that cannot be read, or with two columns of one name.
    """
    arrow, parquet = _arrow()
    try:
        with parquet.ParquetFile(path) as file:
            schema, number = file.schema_arrow, 0
            twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
            if twice is not None:
                raise DataToolsError(f"{path}: has two columns of the name '{twice}'.")
            others = [column.name for column in schema if not _is_json(arrow.types, column.type)]
            for batch in file.iter_batches(batch_size=ROWS):
                if number + batch.num_rows <= skip:
                    number += batch.num_rows
                    continue
                for record in batch.to_pylist(maps_as_pydicts="strict"):
                    number += 1
                    if number > skip:
                        yield number, _row(record, others)
    except (OSError, KeyError, UnicodeDecodeError, arrow.ArrowException) as error:
        raise DataToolsError(f"{path}: cannot be read as Parquet: {error}") from error


def _row(record: Record, others: Sequence[str]) -> Record | Unreadable:
    """A row as JSON has it; `others` are the columns with types that JSON may not have."""
    for name in others:
        try:
            record[name] = _as_json(record[name])
        except _NotJsonError as error:
            return Unreadable("not_json", f"column '{name}' has {error}, which JSON cannot hold.")
    return NUL if has_character(record, "\0") else record


class _NotJsonError(ValueError):
    """A value that no JSON stands for; says what it is."""


def _as_json(value: Any) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise _NotJsonError("an infinite number")
        return None if math.isnan(value) else value
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise _NotJsonError("bytes that are no UTF-8 text") from None
    if isinstance(value, Decimal):
        near = int(value) if value == value.to_integral_value() else float(value)
        return near if Decimal(repr(near)) == value else str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    raise _NotJsonError(f"a value of type {type(value).__name__}")


def _is_json(types: Any, kind: Any) -> bool:
    """Whether every value of a column type is as JSON has it. Floating-point numbers are not: NaN is among them."""
    if types.is_list(kind) or types.is_large_list(kind):
        return _is_json(types, kind.value_type)
    if types.is_struct(kind):
        return all(_is_json(types, kind.field(place).type) for place in range(kind.num_fields))
    tests = (types.is_string, types.is_large_string, types.is_integer, types.is_boolean, types.is_null)
    return any(test(kind) for test in tests)


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
    except (arrow.ArrowException, OverflowError) as error:
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
