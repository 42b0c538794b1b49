"""A map from hashes to row numbers that takes a dozen bytes an entry: what finding duplicates has to remember."""

from array import array

_SPREAD = 0x9E3779B97F4A7C15
_MASK = 0xFFFFFFFFFFFFFFFF


class HashTable:
    """64-bit hashes to numbers below 2^32, by open addressing in two arrays. Entries are never removed.

    A dict of integers takes about ten times the memory.
    """

    def __init__(self) -> None:
        self._bits = 10
        self._used = 0
        self._keys = array("Q", bytes(8 << self._bits))
        self._values = array("I", bytes(4 << self._bits))

    def __len__(self) -> int:
        return self._used

    def __contains__(self, key: int) -> bool:
        return bool(self._keys[self._slot(key or 1)])

    def get(self, key: int) -> int | None:
        """The number of a hash, or None."""
        slot = self._slot(key or 1)
        return self._values[slot] if self._keys[slot] else None

    def setdefault(self, key: int, value: int) -> int:
        """The number of a hash; a new hash gets `value`."""
        key = key or 1  # 0 marks a free slot
        slot = self._slot(key)
        if self._keys[slot]:
            return self._values[slot]
        self._keys[slot], self._values[slot] = key, value
        self._used += 1
        if 5 * self._used > 3 << self._bits:
            self._grow()
        return value

    def put(self, key: int, value: int) -> None:
        """Set the number of a hash."""
        if self.setdefault(key, value) != value:
            self._values[self._slot(key or 1)] = value

    def _slot(self, key: int) -> int:
        """Where a hash stands, or the free slot where it would."""
        keys, last = self._keys, (1 << self._bits) - 1
        slot = ((key * _SPREAD) & _MASK) >> (64 - self._bits)
        while keys[slot] and keys[slot] != key:
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        self._bits += 1
        self._keys, self._values = array("Q", bytes(8 << self._bits)), array("I", bytes(4 << self._bits))
        for key, value in zip(keys, values, strict=True):
            if key:
                slot = self._slot(key)
                self._keys[slot], self._values[slot] = key, value
