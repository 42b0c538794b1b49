"""Rows that are near duplicates of earlier ones, without comparing all with all."""

from array import array

from data_tools.duplicates.minhash import bands, signature
from data_tools.duplicates.shingles import digest, jaccard, numbers, shingles, tokens
from data_tools.duplicates.table import HashTable, temporary_database

SHINGLE = 3
MAX_TEXT = 200_000
"""Characters that are looked at; the rest of a longer text does not count."""


class NearIndex:
    """Finds earlier texts whose shingles have at least a Jaccard similarity.

    Bands of MinHash signatures propose at most one earlier text each, the exact similarity decides. So a text costs a
    fixed number of comparisons however many came before. Bands and shingles lie in temporary files, some 500 bytes a
    text. With `same_numbers`, texts with different numbers are never duplicates: in mathematics they are different
    problems.
    """

    def __init__(self, threshold: float = 0.8, *, same_numbers: bool = True) -> None:
        self.threshold, self.same_numbers = threshold, same_numbers
        self._bands = HashTable(cache_mib=16)
        self._texts = temporary_database(self)
        self._texts.execute("CREATE TABLE texts (place INTEGER PRIMARY KEY, label INTEGER, shingles BLOB)")
        self._texts.execute("BEGIN")

    def find_or_add(self, text: str, label: int) -> tuple[int, float] | None:
        """The label of an earlier text that is near to this one, and the similarity; else keep the text, give None."""
        text = text[:MAX_TEXT]
        found = shingles(tokens(text), SHINGLE)
        salt = digest(numbers(text)) if self.same_numbers else 0
        keys = [key ^ salt for key in bands(signature(found) or [0] * 64)]
        places = self._bands.get_all(keys)
        for place in dict.fromkeys(places[key] for key in keys if key in places):
            earlier, known = self._text(place)
            similarity = jaccard(found, known)
            if similarity >= self.threshold:
                return earlier, similarity
        added = self._texts.execute(
            "INSERT INTO texts (label, shingles) VALUES (?, ?)", (label, array("I", sorted(found)).tobytes())
        )
        assert added.lastrowid is not None, "an insertion has a row"
        self._bands.add_all(keys, added.lastrowid)
        return None

    def _text(self, place: int) -> tuple[int, set[int]]:
        """The label and the shingles of an earlier text."""
        label, content = self._texts.execute("SELECT label, shingles FROM texts WHERE place = ?", (place,)).fetchone()
        return label, set(array("I", content))
