"""Whether two texts are close, in bounded time for texts of any length."""

from rapidfuzz.distance import Levenshtein, Postfix, Prefix

MAX_REST = 20_000
"""Characters that may be left between common beginning and end; more are not compared one by one."""


def at_least_similar(a: str, b: str, limit: float) -> bool:
    """Whether 1 - edit distance / longer length reaches the limit.

    What both texts begin and end with is put aside first. If the rest is very long they do not count as close.
    """
    longest = max(len(a), len(b))
    if not longest:
        return True
    allowed = (1 - limit) * longest
    if abs(len(a) - len(b)) > allowed:
        return False
    begin = Prefix.similarity(a, b)
    a, b = a[begin:], b[begin:]
    end = Postfix.similarity(a, b)
    a, b = a[: len(a) - end], b[: len(b) - end]
    if max(len(a), len(b)) <= allowed:
        return True
    if max(len(a), len(b)) > MAX_REST:
        return False
    return Levenshtein.distance(a, b, score_cutoff=int(allowed)) <= allowed
