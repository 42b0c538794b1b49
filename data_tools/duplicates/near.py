"""Rows that are near duplicates of earlier ones, without comparing all with all."""

import tempfile
from array import array
from types import TracebackType
from typing import Self

from data_tools.duplicates.minhash import BANDS, bands, signature
from data_tools.duplicates.shingles import digest, jaccard, numbers, shingles, tokens
from data_tools.duplicates.table import HashTable

SHINGLE = 3
MAX_TEXT = 200_000
"""Characters that are looked at; the rest of a longer text does not count."""


class NearIndex:
    """Finds earlier texts whose shingles have at least a Jaccard similarity.

    Bands of MinHash signatures propose at most one earlier text each, the exact similarity decides. So a text costs a
    fixed number of comparisons however many came before. Shingles lie in a temporary file; memory holds about 400 bytes
    a text. With `same_numbers`, texts with different numbers are never duplicates: in mathematics they are different
    problems.
    """

    def __init__(self, threshold: float = 0.8, *, same_numbers: bool = True) -> None:
        self.threshold, self.same_numbers = threshold, same_numbers
        self._tables = [HashTable() for _ in range(BANDS)]
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._ends = array("Q", [0])
        self._labels = array("Q")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()

    def find_or_add(self, text: str, label: int) -> tuple[int, float] | None:
        """The label of an earlier text that is near to this one, and the similarity; else keep the text, give None."""
        text = text[:MAX_TEXT]
        found = shingles(tokens(text), SHINGLE)
        salt = digest(numbers(text)) if self.same_numbers else 0
        keys = [key ^ salt for key in bands(signature(found) or [0] * 64)]
        tried: set[int] = set()
        for table, key in zip(self._tables, keys, strict=True):
            place = table.get(key)
            if place is None or place in tried:
                continue
            tried.add(place)
            similarity = jaccard(found, self._shingles(place))
            if similarity >= self.threshold:
                return self._labels[place], similarity
        self._add(found, keys, label)
        return None

    def _add(self, found: set[int], keys: list[int], label: int) -> None:
        place = len(self._labels)
        self._file.seek(0, 2)
        self._file.write(array("I", sorted(found)).tobytes())
        self._ends.append(self._ends[-1] + 4 * len(found))
        self._labels.append(label)
        for table, key in zip(self._tables, keys, strict=True):
            table.setdefault(key, place)

    def _shingles(self, place: int) -> set[int]:
        begin, end = self._ends[place], self._ends[place + 1]
        self._file.seek(begin)
        found = array("I")
        found.frombytes(self._file.read(end - begin))
        return set(found)
