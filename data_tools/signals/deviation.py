"""How far a response is from the others of its prompt: the weights of diversified losses (arXiv:2503.17126)."""

import math
from collections.abc import Sequence

Vector = Sequence[float]


def deviations(vectors: Sequence[Vector]) -> list[float]:
    """Mean cosine distance of each response to the others of its prompt. One response alone has 0.

    Raises: `ValueError` for a zero vector, which has no direction.
    """
    units = [_unit(vector) for vector in vectors]
    others = max(len(units) - 1, 1)
    return [sum(1 - _dot(a, b) for j, b in enumerate(units) if j != i) / others for i, a in enumerate(units)]


def normalised(values: Sequence[float]) -> list[float]:
    """Values moved and scaled to [0, 1]; all equal: zeros."""
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.0 for value in values]


def weights(encodings: Sequence[Sequence[Vector]]) -> list[float]:
    """Weight d / mean(d) of each response, d the geometric mean over encoders of the normalised deviations.

    `encodings` has the vectors of all responses for each encoder. Weights are 1 where all deviations are equal, as they
    always are for two responses: three that differ are needed for any effect.
    """
    columns = [normalised(deviations(vectors)) for vectors in encodings]
    found = [math.prod(values) ** (1 / len(columns)) for values in zip(*columns, strict=True)]
    mean = sum(found) / len(found)
    return [value / mean for value in found] if mean > 0 else [1.0] * len(found)


def _unit(vector: Vector) -> list[float]:
    length = math.hypot(*vector)
    if not length:
        raise ValueError("a vector of zeros has no direction: an encoder must not give one.")
    return [value / length for value in vector]


def _dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
