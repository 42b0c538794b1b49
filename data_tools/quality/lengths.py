"""How much longer one side is than the other, as an effect size and in words."""

import math


class LengthGap:
    """Mean and spread of chosen minus rejected length, in characters, as pairs go by (Welford's recurrence)."""

    def __init__(self) -> None:
        self.pairs = self.longer = self.shorter = 0
        self._chosen = self._rejected = self._mean = self._squares = 0.0

    def add(self, chosen: str, rejected: str) -> None:
        """See one more pair."""
        gap = len(chosen) - len(rejected)
        self.pairs += 1
        self.longer += gap > 0
        self.shorter += gap < 0
        self._chosen += len(chosen)
        self._rejected += len(rejected)
        off = gap - self._mean
        self._mean += off / self.pairs
        self._squares += off * (gap - self._mean)

    @property
    def effect(self) -> float:
        """Mean difference over its standard deviation (Cohen's d of paired values); infinite if it never varies."""
        if self.pairs < 2:
            return 0.0
        spread = math.sqrt(self._squares / (self.pairs - 1))
        if spread < 1e-9:
            return 0.0 if abs(self._mean) < 1e-9 else math.copysign(math.inf, self._mean)
        return self._mean / spread

    def sentence(self) -> str:
        """The effect in words, by the usual bounds 0.2, 0.5 and 0.8."""
        if self.pairs < 2:
            return "There are too few pairs to compare lengths."
        size = abs(self.effect)
        side = "Chosen" if self._mean >= 0 else "Rejected"
        facts = f"by {abs(self._mean):.1f} characters on average, and in {100 * self._share():.0f} % of pairs"
        if size < 0.2:
            return f"Length tells next to nothing: {side.lower()} is longer {facts} (d = {self.effect:.2f})."
        word = "small" if size < 0.5 else "medium" if size < 0.8 else "large"
        warning = "" if size < 0.5 else " A model can win by length alone."
        return f"{side} is longer {facts}: a {word} effect (d = {self.effect:.2f}).{warning}"

    def report(self) -> dict[str, object]:
        """The numbers behind the sentence."""
        count = max(self.pairs, 1)
        effect = self.effect
        return {
            "pairs": self.pairs,
            "chosen_mean": self._chosen / count,
            "rejected_mean": self._rejected / count,
            "chosen_longer": self.longer / count,
            "rejected_longer": self.shorter / count,
            "effect_size": effect if math.isfinite(effect) else None,
            "sentence": self.sentence(),
        }

    def _share(self) -> float:
        return (self.longer if self._mean >= 0 else self.shorter) / self.pairs
