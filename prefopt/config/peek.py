"""A look at the first records of a data file with nothing but the standard library."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefopt.errors import DataError

MOST_RECORDS = 50
LARGEST_JSON = 20_000_000
"""Bytes. A JSON array can only be read whole; a larger one is left to training."""

_LONGEST_LINE = 5_000_000


@dataclass(frozen=True)
class Peek:
    """The first records of a file."""

    records: tuple[Mapping[str, Any], ...]

    @property
    def columns(self) -> frozenset[str]:
        """Names that hold something in at least one record."""
        return frozenset(key for record in self.records for key, value in record.items() if value is not None)

    def renamed(self, columns: Mapping[str, str]) -> Peek:
        """The records with our names, as a column map (ours -> theirs) says."""
        ours = {theirs: mine for mine, theirs in columns.items()}
        return Peek(tuple({ours.get(key, key): value for key, value in record.items()} for record in self.records))


def peek(path: Path, shown: str) -> Peek | None:
    """The first records, or None for a kind of file that only the training stack can read.

    Raises: `DataError`, with `shown` and the line, for a file without records or with something else in it.
    """
    kind = path.suffix.lower()
    try:
        if kind == ".jsonl":
            return _jsonl(path, shown)
        if kind == ".json" and path.stat().st_size <= LARGEST_JSON:
            return _json(path, shown)
        if kind == ".csv":
            return _csv(path, shown)
    except UnicodeDecodeError:
        raise DataError(f"{shown} is not UTF-8 text.") from None
    except OSError as error:
        raise DataError(f"{shown} cannot be read: {error.strerror}.") from None
    return None


def _jsonl(path: Path, shown: str) -> Peek:
    records: list[Mapping[str, Any]] = []
    with path.open(encoding="utf-8-sig") as file:
        number = 0
        while len(records) < MOST_RECORDS and (line := file.readline(_LONGEST_LINE)):
            number += 1
            if line.strip() and len(line) < _LONGEST_LINE:
                records.append(_record(line, f"{shown}:{number}"))
    if not records:
        raise DataError(f"{shown} holds no records.")
    return Peek(tuple(records))


def _record(line: str, place: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        what = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deep"
        raise DataError(f"{place}: not JSON: {what}.") from None
    if not isinstance(record, dict):
        raise DataError(f"{place}: a record must be a JSON object; got {type(record).__name__}.")
    return record


def _json(path: Path, shown: str) -> Peek | None:
    text = path.read_text(encoding="utf-8-sig")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return _jsonl(path, shown)  # JSON lines under another name
    if isinstance(content, dict):
        nested = [value for value in content.values() if isinstance(value, list)]
        content = nested[0] if len(content) == 1 and nested else [content]
    records = (
        tuple(item for item in content[:MOST_RECORDS] if isinstance(item, dict)) if isinstance(content, list) else ()
    )
    if not records:
        raise DataError(f"{shown} holds no records.")
    return Peek(records)


def _csv(path: Path, shown: str) -> Peek:
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            rows = [row for row, _ in zip(csv.DictReader(file), range(MOST_RECORDS), strict=False)]
        except csv.Error as error:
            raise DataError(f"{shown}: not CSV: {error}.") from None
    if not rows:
        raise DataError(f"{shown} holds no records.")
    return Peek(tuple({str(k): v or None for k, v in row.items()} for row in rows))
