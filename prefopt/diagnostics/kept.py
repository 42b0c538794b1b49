"""A filtered data set: the records that a score keeps, as they were written, and an account of the others."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from prefopt.diagnostics.filters import keep_lowest
from prefopt.diagnostics.items import PairRecord
from prefopt.diagnostics.measures import CAPPED
from prefopt.diagnostics.records import PairRows

KEPT, REMOVED = "kept.jsonl", "removed.jsonl"
SIMILARITY = "similarity"
"""Minus the normalised edit distance, so that what is kept differs most."""


@dataclass
class RowScores:
    """The score of each row: that of its pair that is highest. A row with a flagged pair has none."""

    by: str
    scores: array[float]
    flags: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: int, by: str) -> RowScores:
        """For this many rows."""
        return cls(by, array("d", [float("-inf")]) * rows)

    def add(self, records: Sequence[PairRecord], numbers: Sequence[int]) -> None:
        """Take in written records, and the number of each one's row."""
        for record, row in zip(records, numbers, strict=True):
            value = -record["edit_distance"] if self.by == SIMILARITY else record[self.by]
            hindering = [
                flag for flag in record["flag"].split(",") if flag and (flag != CAPPED or self.by == SIMILARITY)
            ]
            if hindering or value is None:
                self.flags[row] = hindering[0] if hindering else "no score"
            else:
                self.scores[row] = max(self.scores[row], value)


def write_kept(folder: Path, pairs: PairRows, scores: RowScores, fraction: float) -> dict[str, Any]:
    """Write `kept.jsonl` and `removed.jsonl`; gives the account for the summary."""
    values = torch.tensor(scores.scores, dtype=torch.float64)
    usable = torch.ones(len(values), dtype=torch.bool)
    usable[list(scores.flags)] = False
    kept = keep_lowest(values, fraction, usable=usable)
    threshold = float(values[kept].max()) if len(kept) else None
    _write(folder / KEPT, _kept(pairs, {pairs.numbers[row] for row in kept.tolist()}))
    removed = list(_removed(pairs, scores, set(kept.tolist()), fraction))
    _write(folder / REMOVED, ((json.dumps(line, ensure_ascii=False) + "\n").encode() for line in removed))
    reasons: dict[str, int] = {}
    for line in removed:
        reasons[line["reason"]] = reasons.get(line["reason"], 0) + 1
    return {
        "keep_lowest": fraction,
        "by": scores.by,
        "kept": len(kept),
        "removed": len(removed),
        "threshold": threshold,
        "reasons": reasons,
    }


def _kept(pairs: PairRows, wanted: set[int]) -> Iterator[bytes]:
    return (line for number, line in enumerate(pairs.texts()) if number in wanted)


def _removed(pairs: PairRows, scores: RowScores, kept: set[int], fraction: float) -> Iterator[dict[str, Any]]:
    """Rows with a score that is too high, flagged rows, and records that gave no row."""
    for row, id_ in enumerate(pairs.table["id"]):
        if row in scores.flags:
            yield {"id": id_, "score": None, "reason": scores.flags[row]}
        elif row not in kept:
            yield {"id": id_, "score": scores.scores[row], "reason": f"not among the lowest {fraction:g}"}
    for reason, ids in pairs.audit.lost.items():
        for id_ in ids:
            yield {"id": id_, "score": None, "reason": reason}


def _write(path: Path, lines: Iterator[bytes]) -> None:
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("wb") as file:
        file.writelines(lines)
    os.replace(unfinished, path)
