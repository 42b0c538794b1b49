"""A look at the first records of a data file, without the training stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from prefopt.config.paths import short
from prefopt.data.readers import TEXT_FORMATS, read_numbered
from prefopt.errors import DataError

MOST_RECORDS = 50
LARGEST_WHOLE = 20_000_000
"""Bytes. A JSON list can only be read whole; a larger one is left to training."""

LARGEST_COUNT = 200_000_000
"""Bytes. Rows of larger files are not counted: the answer should come at once."""


@dataclass(frozen=True)
class Peek:
    """The first records of a file."""

    records: tuple[Mapping[str, Any], ...]

    @property
    def columns(self) -> frozenset[str]:
        """Names that hold something in at least one record."""
        return frozenset(key for record in self.records for key, value in record.items() if value not in (None, ""))

    def renamed(self, columns: Mapping[str, str]) -> Peek:
        """The records with our names, as a column map (ours -> theirs) says; a mapped column loses its own name."""
        taken = {*columns, *columns.values()}
        mapped = [({o: r[t] for o, t in columns.items() if t in r}, r) for r in self.records]
        return Peek(tuple({**{k: v for k, v in r.items() if k not in taken}, **new} for new, r in mapped))


def peek(path: Path) -> Peek | None:
    """The first records, or None for a kind of file that only the training stack can read.

    Raises: `DataError`, with the line, for a file without records or with something else in it.
    """
    if path.suffix not in TEXT_FORMATS or (path.suffix == ".json" and path.stat().st_size > LARGEST_WHOLE):
        return None
    try:
        records = tuple(record for _, record in islice(read_numbered(path), MOST_RECORDS))
    except DataError as error:
        raise DataError(str(error).replace(str(path), short(path))) from None
    if not records:
        raise DataError(f"{short(path)} has no records.")
    return Peek(records)


def row_count(path: Path) -> int | None:
    """Records in a JSON-lines file of this machine; None for anything else."""
    if path.suffix.lower() != ".jsonl" or not path.is_file() or path.stat().st_size > LARGEST_COUNT:
        return None
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip())
