"""Overlap with texts that must not be trained on: how much of a text stands in a given set."""

from collections.abc import Iterable

from data_tools.duplicates.shingles import digest, tokens
from data_tools.duplicates.table import HashTable


class NgramSet:
    """The runs of n tokens of a set of texts. A text shorter than n tokens counts as one run."""

    def __init__(self, n: int, texts: Iterable[str] = ()) -> None:
        self.n = n
        self._table = HashTable()
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Remember the runs of a text."""
        self._table.add_all(_runs(text, self.n), 1)

    def share(self, text: str) -> float:
        """The share of a text's runs that are in the set, 0 for a text without tokens."""
        found = _runs(text, self.n)
        known = self._table.get_all(found)
        return sum(run in known for run in found) / len(found) if found else 0.0


def _runs(text: str, n: int) -> list[int]:
    """Hashes (64 bit) of the runs of n tokens, in order; a shorter text is one run."""
    words = tokens(text)
    if len(words) <= n:
        return [digest(" ".join(words))] if words else []
    return [digest(" ".join(words[at : at + n])) for at in range(len(words) - n + 1)]
