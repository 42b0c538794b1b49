"""A map from hashes to numbers that lies on disk: finding duplicates takes the same memory for any number of rows."""

import sqlite3
import weakref
from collections.abc import Iterable, Sequence

_HALF = 1 << 63
_MANY = 500  # keys of one question; SQLite takes a thousand and more


def temporary_database(owner: object, *, cache_mib: int = 4) -> sqlite3.Connection:
    """An empty database in a nameless temporary file, gone with its owner or the process. `cache_mib` is its memory.

    The file lies in `SQLITE_TMPDIR`, `TMPDIR` or /var/tmp, whichever there is, and is written once the cache is full.
    """
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # closed by whoever collects it
    weakref.finalize(owner, database.close)
    for setting in ("journal_mode = OFF", "synchronous = OFF", "temp_store = FILE", f"cache_size = -{cache_mib << 10}"):
        database.execute(f"PRAGMA {setting}")
    return database


class HashTable:
    """64-bit hashes to whole numbers below 2^63. Entries are never removed."""

    def __init__(self, *, cache_mib: int = 4) -> None:
        self._database = temporary_database(self, cache_mib=cache_mib)
        self._database.execute("CREATE TABLE entries (key INTEGER PRIMARY KEY, value INTEGER NOT NULL)")
        self._database.execute("BEGIN")  # one transaction, never ended: nothing is worth saving

    def __len__(self) -> int:
        count: int = self._database.execute("SELECT count(*) FROM entries").fetchone()[0]
        return count

    def get(self, key: int) -> int | None:
        """The number of a hash, or None."""
        found = self._database.execute("SELECT value FROM entries WHERE key = ?", (key - _HALF,)).fetchone()
        return None if found is None else found[0]

    def get_all(self, keys: Sequence[int]) -> dict[int, int]:
        """The numbers of those of many hashes that are there."""
        found: dict[int, int] = {}
        for begin in range(0, len(keys), _MANY):
            asked = [key - _HALF for key in keys[begin : begin + _MANY]]
            marks = ", ".join("?" * len(asked))
            found.update(self._database.execute(f"SELECT key, value FROM entries WHERE key IN ({marks})", asked))
        return {key + _HALF: value for key, value in found.items()}

    def setdefault(self, key: int, value: int) -> int:
        """The number of a hash; a new hash gets `value`."""
        new = self._database.execute("INSERT OR IGNORE INTO entries VALUES (?, ?)", (key - _HALF, value))
        found = value if new.rowcount else self.get(key)
        assert found is not None, "it was there, or is now"
        return found

    def add_all(self, keys: Iterable[int], value: int) -> None:
        """Give `value` to those of many hashes that are new."""
        self._database.executemany(
            "INSERT OR IGNORE INTO entries VALUES (?, ?)", [(key - _HALF, value) for key in keys]
        )
