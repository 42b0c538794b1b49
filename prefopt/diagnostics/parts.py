"""Measuring a data set in parts: each written whole, so that a run that was killed goes on where it was.

A part's content depends on the rows, the settings and the models alone, all of which are in the key that is kept beside
the parts. Any number of processes may share the work, and another number may take it up again.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefopt.diagnostics.items import Batch, PairRecord, batches_of, items_of, parts_of, windows
from prefopt.diagnostics.measures import Measure
from prefopt.runs import read_json, write_json, write_text

logger = logging.getLogger(__name__)

FOLDER = ".parts"
_KEY = "key.json"
Progress = Callable[[int, int], None]
"""Called with rows done and all rows."""


@dataclass(frozen=True)
class Parts:
    """The parts of one measurement, under `folder`. `table` holds tokenized rows, `tokens` is the budget of a batch."""

    folder: Path
    table: Any
    tokens: int

    def open(self, key: Mapping[str, Any]) -> None:
        """Take up what is there if it has the same key, and begin afresh if not, saying what differs."""
        file = self.folder / _KEY
        wanted = json.loads(json.dumps(key))
        if file.is_file():
            found = read_json(file)
            if found == wanted:
                logger.info("continuing: %d parts are there already", sum(1 for _ in self.folder.glob("*.jsonl")))
                return
            differ = sorted(k for k in {*found, *wanted} if found.get(k) != wanted.get(k))
            logger.warning("starting afresh: the unfinished diagnosis there differs in: %s", ", ".join(differ))
        shutil.rmtree(self.folder, ignore_errors=True)
        write_json(file, wanted)

    def measure(self, measure: Measure, *, rank: int = 0, world: int = 1, progress: Progress | None = None) -> None:
        """Compute the parts of this process that are not there: every `world`-th one."""
        done = 0
        for name, part in self._planned(rank, world):
            if not (self.folder / name).is_file():
                self._write(name, [record for batch in part for record in measure(batch)])
            done += len({pair.row for batch in part for item in batch for pair in item.pairs})
            if progress is not None:
                progress(min(done * world, len(self.table)), len(self.table))

    def _planned(self, rank: int, world: int) -> Iterator[tuple[str, list[Batch]]]:
        count = 0
        for number, (start, window) in enumerate(windows(self.table)):
            for place, part in enumerate(parts_of(batches_of(self._items(window, start), tokens=self.tokens))):
                if count % world == rank:
                    yield f"{number:06d}-{place:04d}.jsonl", part
                count += 1

    def _items(self, window: list[dict[str, Any]], start: int) -> Any:
        return items_of(window, start, tokens=self.tokens)

    def _write(self, name: str, records: list[PairRecord]) -> None:
        write_text(self.folder / name, "".join(json.dumps(record) + "\n" for record in records))

    def merged(self) -> Iterator[tuple[list[dict[str, Any]], list[PairRecord]]]:
        """Rows and the records of their pairs in the order of the data, a window at a time."""
        for number, (_, window) in enumerate(windows(self.table)):
            records = [
                json.loads(line)
                for file in sorted(self.folder.glob(f"{number:06d}-*.jsonl"))
                for line in file.read_text(encoding="utf-8").splitlines()
            ]
            yield window, sorted(records, key=lambda record: (record["row"], record["rejected_index"]))

    def remove(self) -> None:
        """The parts are no longer needed."""
        shutil.rmtree(self.folder, ignore_errors=True)
