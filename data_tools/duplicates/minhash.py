"""MinHash signatures by one permutation, and the bands by which similar ones meet.

Each shingle is hashed once and falls into one of 64 bins; a bin keeps its least hash. Two texts agree in a bin with a
probability equal to the Jaccard similarity of their shingles. Empty bins borrow from the next filled one
(densification by rotation), so that short texts have whole signatures too. Sources: arXiv:1208.1259 (one permutation),
arXiv:1406.4784 (densification).
"""

BINS = 64
BANDS = 16
ROWS = BINS // BANDS

_LOW = 32 - 6
_OFFSET = 1 << _LOW
_SPREAD = 0x9E3779B1
_EMPTY = 1 << 62


def signature(hashes: set[int]) -> list[int]:
    """The signature of a set of 32-bit hashes; an empty set has none."""
    if not hashes:
        return []
    least = [_EMPTY] * BINS
    for value in hashes:
        value = ((value ^ (value >> 15)) * _SPREAD) & 0xFFFFFFFF
        value ^= value >> 13
        place, rest = value >> _LOW, value & (_OFFSET - 1)
        if rest < least[place]:
            least[place] = rest
    return least if _EMPTY not in least else _densified(least)


def bands(signed: list[int]) -> list[int]:
    """One 64-bit key for each band; of independent bins, texts of similarity s share one at 1 - (1 - s^4)^16."""
    return [hash((number, *signed[number * ROWS : (number + 1) * ROWS])) & (2**64 - 1) for number in range(BANDS)]


def _densified(least: list[int]) -> list[int]:
    """Every empty bin takes the value of the next filled one to the right, marked with the distance."""
    filled = list(least)
    value, distance = _EMPTY, 0
    for place in range(2 * BINS - 1, -1, -1):
        place %= BINS
        if least[place] != _EMPTY:
            value, distance = least[place], 0
        elif value != _EMPTY:
            distance += 1
            filled[place] = value + distance * _OFFSET
    return filled
