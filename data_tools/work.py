"""Half-done output: spools beside the output file, and a journal from which a killed run goes on.

A run writes into a hidden folder `.OUT.work`. Now and then the journal notes how many records were read and how long
the spools were then. A run with the same plan cuts the spools back to that and goes on; any other starts anew. Only
when all is written do the files take their names.
"""

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from data_tools.errors import DataToolsError
from data_tools.records import Record, format_line, replacing

EVERY_RECORDS = 2000
EVERY_SECONDS = 5.0

_JOURNAL = "journal.json"
LOCK = "lock"


@dataclass
class Work:
    """The spools of one run. `read` counts the records that are dealt with, `counts` whatever the run counts."""

    folder: Path
    key: str
    read: int = 0
    done: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    _spools: dict[str, IO[bytes]] = field(default_factory=dict)
    _noted: float = field(default_factory=time.monotonic)
    _since: int = 0

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Append a record to a spool. Raises: `RecordError` if it is no JSON."""
        line = format_line(record).encode("utf-8")
        self._spool(name).write(line)

    def advance(self, read: int) -> None:
        """Note that the first `read` records are dealt with, and keep the journal young."""
        self.read = read
        self._since += 1
        if self._since >= EVERY_RECORDS or time.monotonic() - self._noted > EVERY_SECONDS:
            self.note()

    def note(self, *, done: bool = False) -> None:
        """Write the journal: from here a later run goes on."""
        for spool in self._spools.values():
            spool.flush()
        self.done = done
        sizes = {name: spool.tell() for name, spool in self._spools.items()}
        content = {"key": self.key, "read": self.read, "done": done, "sizes": sizes, "counts": dict(self.counts)}
        with replacing(self.folder / _JOURNAL) as temporary:
            temporary.write_text(json.dumps(content))
        self._noted, self._since = time.monotonic(), 0

    def path(self, name: str) -> Path:
        """The spool's file; empty if nothing was written to it."""
        self._spool(name).flush()
        return self.folder / name

    def close(self) -> None:
        """Close the spools."""
        for spool in self._spools.values():
            spool.close()
        self._spools.clear()

    def remove(self) -> None:
        """Remove the folder: the work is done, or not wanted any more."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self) -> None:
        """Forget what was written."""
        self.close()
        for file in self.folder.iterdir():
            if file.name != LOCK:
                file.unlink()
        self.read, self.done = 0, False
        self.counts.clear()

    def _spool(self, name: str) -> IO[bytes]:
        if name not in self._spools:
            self._spools[name] = (self.folder / name).open("ab")
        return self._spools[name]

    def _resume(self) -> bool:
        """Take over what an earlier run with the same plan left; False if there is nothing of the kind."""
        journal = _journal(self.folder)
        if journal.get("key") != self.key:
            return False
        for name, size in journal["sizes"].items():
            file = self.folder / name
            if not file.is_file() or file.stat().st_size < size:
                return False
            os.truncate(file, size)
        for file in self.folder.iterdir():
            if file.name not in (_JOURNAL, LOCK, *journal["sizes"]):
                file.unlink()
        self.read, self.done, self.counts = journal["read"], journal["done"], Counter(journal["counts"])
        for name in journal["sizes"]:
            self._spool(name)
        return True


def work_folder(out: Path) -> Path:
    """Where the half-done work for an output lies."""
    return out.with_name(f".{out.name}.work")


def begun(out: Path, key: str) -> bool:
    """Whether an earlier run with this plan was cut off."""
    return _journal(work_folder(out)).get("key") == key


@contextmanager
def working(out: Path, key: str, *, resume: bool = True) -> Iterator[Work]:
    """The work folder of an output, continued if it belongs to the same plan.

    It stays when the block is left with an error or by a kill, and goes with `Work.remove`. Raises: `DataToolsError`
    if the folder cannot be written or another run is at it.
    """
    folder = work_folder(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a")
    except OSError as error:
        raise DataToolsError(f"{out}: cannot be written: {error.strerror or error}") from error
    with lock:
        _take(lock, out)
        work = Work(folder, key)
        try:
            if not (resume and work._resume()):
                work.restart()
                work.note()
            yield work
        finally:
            work.close()


def _journal(folder: Path) -> Record:
    try:
        content = json.loads((folder / _JOURNAL).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _take(lock: IO[str], out: Path) -> None:
    """Keep others out; the lock goes with the process, however it ends. Without it, on systems that have none."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise DataToolsError(f"{out}: another run is writing this file.") from error
