"""A random sample of numbers that go by, in fixed memory."""

import random


class Reservoir:
    """Keeps `size` of the numbers, each with the same chance, and the exact count, mean, least and largest of all."""

    def __init__(self, size: int, seed: str) -> None:
        self._size, self._random = size, random.Random(seed)
        self._kept: list[float] = []
        self._total = 0.0
        self._least, self._largest = float("inf"), float("-inf")
        self.seen = 0

    def add(self, value: float) -> None:
        """See one more number."""
        self.seen += 1
        self._total += value
        self._least, self._largest = min(self._least, value), max(self._largest, value)
        if len(self._kept) < self._size:
            self._kept.append(value)
        elif (place := self._random.randrange(self.seen)) < self._size:
            self._kept[place] = value

    def quantile(self, share: float) -> float:
        """The value that this share of the sample does not exceed."""
        ordered = sorted(self._kept)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def summary(self) -> dict[str, float]:
        """Count, mean, extremes, and quantiles of the sample."""
        if not self.seen:
            return {"count": 0}
        middle = {f"p{round(100 * share)}": self.quantile(share) for share in (0.05, 0.5, 0.95)}
        return {"count": self.seen, "mean": self._total / self.seen, "min": self._least, **middle, "max": self._largest}
