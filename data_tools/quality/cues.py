"""Whether chosen and rejected can be told apart without reading them.

A logistic regression on differences of surface features, judged on pairs that it was not fitted to. It has no
constant: a pair and its mirror image get opposite answers, so 50 % is chance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from data_tools.quality.surface import FEATURES, surface

FOLDS = 5
RIDGE = 1.0
STEPS = 12

Sparse = list[tuple[int, float]]


@dataclass(frozen=True)
class Cue:
    """One feature by itself: how often it tells chosen from rejected, and which way it points."""

    name: str
    accuracy: float
    differs: float
    more_in: str

    def __str__(self) -> str:
        return f"{self.name} (more in {self.more_in}), alone {100 * self.accuracy:.0f} %"


@dataclass(frozen=True)
class CueReport:
    """Held-out accuracy of all features together, its standard error, and the cues, strongest first."""

    pairs: int
    accuracy: float
    error: float
    cues: tuple[Cue, ...]

    def exceeds(self, limit: float) -> bool:
        """Whether the accuracy is over the limit, and over chance by more than two standard errors."""
        return self.accuracy > limit and self.accuracy - 2 * self.error > 0.5

    def sentence(self, limit: float) -> str:
        """The result in words."""
        if self.pairs < 2 * FOLDS:
            return f"{self.pairs} pairs are too few to look for format cues."
        told = f"surface features tell chosen from rejected in {100 * self.accuracy:.0f} % of held-out pairs"
        doubt = f" (± {100 * self.error:.0f}, {self.pairs} pairs; chance is 50)"
        if not self.exceeds(limit):
            return f"No format cue: {told}{doubt}."
        named = "; ".join(map(str, self.cues[:3]))
        return f"Format cue: {told}{doubt}. Strongest: {named}."


def difference(chosen: str, rejected: str) -> Sparse:
    """Features of chosen minus features of rejected, without the zeros."""
    pairs = zip(surface(chosen), surface(rejected), strict=True)
    return [(at, a - b) for at, (a, b) in enumerate(pairs) if abs(a - b) > 1e-12]


def find_cues(differences: Sequence[Sparse], folds: Sequence[int]) -> CueReport:
    """Cross-validated accuracy over pairs; pairs of one problem should share a fold (0 to 4)."""
    total = len(differences)
    if total < 2 * FOLDS:
        return CueReport(total, 0.5, 0.5, ())
    differences = _scaled(differences)
    right = 0.0
    alone = [0.0] * len(FEATURES)
    for fold in range(FOLDS):
        train = [row for row, place in zip(differences, folds, strict=True) if place % FOLDS != fold]
        test = [row for row, place in zip(differences, folds, strict=True) if place % FOLDS == fold]
        weights = fit(train, len(FEATURES))
        right += sum(_score(sum(weights[at] * value for at, value in row)) for row in test)
        signs = _signs(train)
        for row in test:
            for at, value in row:
                alone[at] += _score(signs[at] * value) - 0.5
    accuracy = right / total
    cues = _cues(differences, [0.5 + excess / total for excess in alone])
    return CueReport(total, accuracy, math.sqrt(max(accuracy * (1 - accuracy), 0.25 / total) / total), cues)


def fit(rows: Sequence[Sparse], width: int) -> list[float]:
    """Weights w that minimise sum log(1 + exp(-w.x)) + RIDGE/2 |w|^2, by Newton's method."""
    weights = [0.0] * width
    for _ in range(STEPS):
        gradient = [-RIDGE * weight for weight in weights]
        curvature = [[0.0] * width for _ in range(width)]
        for row in rows:
            away = _sigmoid(-sum(weights[at] * value for at, value in row))
            spread = away * (1 - away)
            for at, value in row:
                gradient[at] += away * value
                scaled, line = spread * value, curvature[at]
                for other, factor in row:
                    line[other] += scaled * factor
        for at in range(width):
            curvature[at][at] += RIDGE
        step = solve(curvature, gradient)
        weights = [weight + change for weight, change in zip(weights, step, strict=True)]
        if max(map(abs, step)) < 1e-6:
            break
    return weights


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """The x with matrix x = right, for a symmetric positive definite matrix (Cholesky)."""
    size = len(right)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(a * b for a, b in zip(lower[i][:j], lower[j][:j], strict=True))
            lower[i][j] = math.sqrt(rest) if i == j else rest / lower[j][j]
    x = [0.0] * size
    for i in range(size):
        x[i] = (right[i] - sum(a * b for a, b in zip(lower[i][:i], x[:i], strict=True))) / lower[i][i]
    for i in reversed(range(size)):
        x[i] = (x[i] - sum(lower[k][i] * x[k] for k in range(i + 1, size))) / lower[i][i]
    return x


def _scaled(rows: Sequence[Sparse]) -> list[Sparse]:
    """Every feature with root mean square 1; the sign of a difference keeps its meaning."""
    squares = [0.0] * len(FEATURES)
    for row in rows:
        for at, value in row:
            squares[at] += value * value
    scale = [math.sqrt(len(rows) / square) if square else 0.0 for square in squares]
    return [[(at, value * scale[at]) for at, value in row] for row in rows]


def _signs(rows: Sequence[Sparse]) -> list[float]:
    """For each feature, which way it points more often: 1 more in chosen, -1 more in rejected, 0 undecided."""
    votes = [0] * len(FEATURES)
    for row in rows:
        for at, value in row:
            votes[at] += 1 if value > 0 else -1
    return [float((vote > 0) - (vote < 0)) for vote in votes]


def _cues(rows: Sequence[Sparse], accuracies: Sequence[float]) -> tuple[Cue, ...]:
    differs, votes = [0] * len(FEATURES), _signs(rows)
    for row in rows:
        for at, _ in row:
            differs[at] += 1
    found = [
        Cue(name, accuracies[at], differs[at] / len(rows), "chosen" if votes[at] > 0 else "rejected")
        for at, name in enumerate(FEATURES)
        if differs[at]
    ]
    return tuple(sorted(found, key=lambda cue: -cue.accuracy))


def _score(value: float) -> float:
    """1 for chosen told rightly, 0 for wrongly, a half for no difference."""
    return 0.5 if abs(value) < 1e-9 else float(value > 0)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
