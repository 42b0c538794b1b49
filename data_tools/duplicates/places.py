"""Where rows were seen: hashes of texts, and files and lines that a message can name."""

from array import array
from pathlib import Path

from data_tools.duplicates.table import HashTable

_LINES = 40


class Places:
    """Remembers where each text came first. File 0 is the input itself; others get their numbers from `file`."""

    def __init__(self) -> None:
        self._files = ["line"]
        self._places = array("Q")

    def file(self, path: Path) -> int:
        """A number for another file."""
        self._files.append(f"{path.name}:")
        return len(self._files) - 1

    def add(self, file: int, line: int) -> int:
        """A number for a place."""
        self._places.append(file << _LINES | line)
        return len(self._places) - 1

    def own(self, place: int) -> bool:
        """Whether a place is in the input itself."""
        return not self._places[place] >> _LINES

    def name(self, place: int) -> str:
        """A place in words: "line 7", or "heldout.jsonl:7"."""
        file, line = self._places[place] >> _LINES, self._places[place] & ((1 << _LINES) - 1)
        return f"line {line}" if not file else f"{self._files[file]}{line}"


class Seen:
    """The first place of every text, by hash."""

    def __init__(self) -> None:
        self._table = HashTable()

    def __len__(self) -> int:
        return len(self._table)

    def get(self, key: int) -> int | None:
        """Where the text of this hash was seen first, or None."""
        return self._table.get(key)

    def first(self, key: int, place: int) -> int | None:
        """Where the text of this hash was seen before; None, and remembered, if nowhere."""
        found = self._table.setdefault(key, place)
        return None if found == place else found
