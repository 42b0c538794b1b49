"""A fixed set of training rows that is looked at again and again: how it has moved from the start of the run.

The set depends on the number of rows alone, so that runs of one data set look at the same rows, on any number of
processes. The start is read once, before the first step, and kept beside the records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from prefopt.data import rows
from prefopt.data.sampler import Rows
from prefopt.diagnostics.items import Item, PairRecord
from prefopt.diagnostics.readings import Reading, moved, read_batch, track_columns
from prefopt.diagnostics.table import MOVEMENT, token_texts
from prefopt.runs import probe_file
from prefopt.scoring.modes import evaluating
from prefopt.scoring.policy import Scorer

START = "start.safetensors"
SCHEMA = pa.schema(
    {
        "step": pa.int32(),
        "id": pa.large_string(),
        "rejected_index": pa.int32(),
        "chosen_tokens": pa.int32(),
        "rejected_tokens": pa.int32(),
        **MOVEMENT,
    }
)
"""Columns of a table of probes; null where a row lacks the side: single responses have one."""


def probe_places(total: int, count: int) -> list[int]:
    """Which of `total` rows are looked at, in order: `count` of them, always the same."""
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0))
    return sorted(order[:count].tolist())


@dataclass(frozen=True)
class ProbeSet:
    """The rows that are looked at, as items of one row each; a process reads every `world`-th of them."""

    ids: list[str]
    items: list[Item]
    labels: list[bool | None]

    @classmethod
    def of(cls, table: Rows, count: int) -> ProbeSet:
        """Some rows of a tokenized data set, all of them where there are no more."""
        found = [table[place] for place in probe_places(len(table), count)]
        items = []
        for number, row in enumerate(found):
            items.append(Item(row[rows.PROMPT_IDS]))
            items[-1].add(number, row[rows.RESPONSES], row[rows.MASKS])
        return cls([str(row[rows.ID]) for row in found], items, [row.get(rows.LABEL) for row in found])

    def records(self, number: int, now: Reading, then: Reading) -> list[PairRecord]:
        """What became of one row: a record for each of its pairs, or one for its single response."""
        item, name = self.items[number], {"id": self.ids[number]}
        if not item.pairs:
            return [name | _single(item, now, then, rejected=self.labels[number] is False)]
        return [
            {
                **name,
                "rejected_index": pair.rejected_index,
                "chosen_tokens": sum(item.masks[pair.chosen]),
                "rejected_tokens": sum(item.masks[pair.rejected]),
                **record,
            }
            for pair, record in zip(item.pairs, moved(item, now, then), strict=True)
        ]


def _single(item: Item, now: Reading, then: Reading, *, rejected: bool) -> PairRecord:
    """A single response: an undesirable one stands where rejected ones do."""
    side, count = "rejected" if rejected else "chosen", sum(item.masks[0])
    delta = float((now.logps[0] - then.logps[0]).sum())
    found = {
        f"{side}_tokens": count,
        f"{side}_start": float(then.logps[0].sum()),
        f"{side}_now": float(now.logps[0].sum()),
        f"{side}_delta": delta,
        f"{side}_delta_per_token": delta / max(count, 1),
    }
    return found if rejected else found | track_columns(item, 0, now, then)


Gather = Callable[[list[Any]], list[Any]]
"""What every process holds, one list behind the other, on every process."""


def _alone(found: list[Any]) -> list[Any]:
    return found


@dataclass
class Probes:
    """A probe set at work: reads this process's share, compares with the start, and writes tables into `folder`.

    `batch_size` is in rows. One process `writes`. `start` is known once `begin` was called.
    """

    probes: ProbeSet
    scorer: Scorer
    tokenizer: PreTrainedTokenizerBase
    folder: Path
    batch_size: int = 8
    rank: int = 0
    world: int = 1
    gather: Gather = _alone
    writes: bool = True
    start: list[Reading] = field(default_factory=list)

    @property
    def mine(self) -> list[int]:
        """Numbers of the rows that this process reads."""
        return list(range(self.rank, len(self.probes.items), self.world))

    def begin(self, model: nn.Module) -> None:
        """Read the start and keep it, for this process and for one that resumes. Collective."""
        self.start = self._read(model)
        everything = self.gather(list(zip(self.mine, self.start, strict=True)))
        if self.writes:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_start(self.folder / START, self.probes.ids, dict(everything))

    def resume(self) -> bool:
        """Take up the start that was kept; False when it is missing or that of other rows."""
        kept = load_start(self.folder / START, self.probes.ids)
        if kept is not None:
            self.start = [kept[number] for number in self.mine]
        return kept is not None

    def measure(self, model: nn.Module, step: int) -> dict[str, float]:
        """Write the step's table; gives its metrics, the same in every process. Collective."""
        found = []
        for number, now, then in zip(self.mine, self._read(model, self.start), self.start, strict=True):
            found.append((number, self.probes.records(number, now, then)))
        records = [record for _, some in sorted(self.gather(found), key=lambda one: one[0]) for record in some]
        if self.writes:
            self._write(records, step)
        return probe_metrics(records)

    def _read(self, model: nn.Module, starts: Sequence[Reading] | None = None) -> list[Reading]:
        found: list[Reading] = []
        with evaluating(model):
            for first in range(0, len(self.mine), self.batch_size):
                part = slice(first, first + self.batch_size)
                batch = [self.probes.items[number] for number in self.mine[part]]
                found += read_batch(model, batch, self.scorer, starts=None if starts is None else starts[part])
        return found

    def _write(self, records: Sequence[PairRecord], step: int) -> None:
        lines = [{"step": step, **record, **token_texts(record, self.tokenizer)} for record in records]
        file = self.folder / probe_file(step)
        unfinished = file.with_name(f".{file.name}.unfinished")
        pq.write_table(pa.Table.from_pylist(lines, schema=SCHEMA), unfinished)
        os.replace(unfinished, file)


def probe_metrics(records: Sequence[PairRecord]) -> dict[str, float]:
    """What a table of probes comes to, each number over the records that have it."""
    found = {}
    for side in ("chosen", "rejected"):
        moved_by = _column(records, f"{side}_delta")
        if moved_by:
            found[f"probes/{side}_delta"] = _mean(moved_by)
            found[f"probes/{side}_delta_per_token"] = sum(moved_by) / max(sum(_column(records, f"{side}_tokens")), 1)
    found |= _dropped(records)
    now, start, held = (_column(records, f"greedy_{when}") for when in ("now", "start", "held"))
    if now:
        found["displacement/greedy_track"] = _mean(now)
        found["displacement/greedy_track_change"] = _mean(now) - _mean(start)
        found["displacement/greedy_track_held"] = _mean(held)
    if _column(records, "branch_position"):
        for name in ("chosen", "rejected", "other"):
            found[f"probes/branch_{name}"] = _mean(_column(records, f"branch_{name}_now"))
        found["probes/branch_third_gains"] = _mean(_column(records, "branch_gainer_is_third"))
    return found


def _dropped(records: Sequence[PairRecord]) -> dict[str, float]:
    chosen = _column(records, "chosen_delta")
    found = {"probes/chosen_dropped": _mean([float(delta < 0) for delta in chosen])} if chosen else {}
    pairs = [(r["chosen_delta"], r["rejected_delta"]) for r in records if "quadrant" in r]
    if pairs:
        found["probes/both_dropped"] = _mean([float(max(pair) < 0) for pair in pairs])
    return found


def _column(records: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(record[name]) for record in records if record.get(name) is not None]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def save_start(file: Path, ids: Sequence[str], readings: Mapping[int, Reading]) -> None:
    """Write the readings of the start, by number of the row."""
    tensors: dict[str, Tensor] = {}
    for number, reading in readings.items():
        tensors |= {f"{number}.{name}": value.contiguous() for name, value in vars(reading).items()}
    unfinished = file.with_name(f".{file.name}.unfinished")
    save_file(tensors, unfinished, metadata={"ids": json.dumps(list(ids))})
    os.replace(unfinished, file)


def load_start(file: Path, ids: Sequence[str]) -> dict[int, Reading] | None:
    """The readings that were written for these rows; None when there are none, or for others."""
    if not file.is_file():
        return None
    with safe_open(file, framework="pt") as kept:
        if json.loads((kept.metadata() or {}).get("ids", "[]")) != list(ids):
            return None
        names = tuple(Reading.__dataclass_fields__)
        return {n: Reading(*(kept.get_tensor(f"{n}.{name}") for name in names)) for n in range(len(ids))}
