"""Where rows were seen: hashes of texts, and files and lines that a message can name."""

from pathlib import Path

from data_tools.duplicates.table import HashTable

_LINES = 40


class Places:
    """Numbers for places, a file and a line each. File 0 is the input itself; others get their numbers from `file`."""

    def __init__(self) -> None:
        self._files = ["line"]

    def file(self, path: Path) -> int:
        """A number for another file."""
        self._files.append(f"{path.name}:")
        return len(self._files) - 1

    def name(self, place: int) -> str:
        """A place in words: "line 7", or "heldout.jsonl:7"."""
        file, line = place >> _LINES, place & ((1 << _LINES) - 1)
        return f"line {line}" if own(place) else f"{self._files[file]}{line}"


def place_of(file: int, line: int) -> int:
    """A number for a place."""
    return file << _LINES | line


def own(place: int) -> bool:
    """Whether a place is in the input itself."""
    return not place >> _LINES


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
