"""Token scores out of what two models recorded: contrastive estimation of critical tokens (arXiv:2411.19943)."""

import math
from collections.abc import Sequence


def token_scores(
    positive: Sequence[Sequence[float]],
    negative: Sequence[Sequence[float]],
    labels: Sequence[int],
    *,
    ce_beta: float = 1.0,
) -> list[float]:
    """Score of each label: softmax((1 + ce_beta) z+ - ce_beta z-) at the label, dimensionless, in [0, 1].

    z+ and z- are the logits of models tuned on right and on wrong solutions, one row over the vocabulary for each
    token. Log-probabilities do as well: a constant in a row cancels. A token that only the negative model likes has a
    score near 0; the loss weighs tokens of the rejected response by 1 - score. `ce_beta` = 0 gives the positive
    model's probability.

    Raises: `ValueError` for rows of different lengths.
    """
    return [_score(up, down, label, ce_beta) for up, down, label in zip(positive, negative, labels, strict=True)]


def _score(up: Sequence[float], down: Sequence[float], label: int, ce_beta: float) -> float:
    values = [(1 + ce_beta) * a - ce_beta * b for a, b in zip(up, down, strict=True)]
    most = max(values)
    return math.exp(values[label] - most) / math.fsum(math.exp(value - most) for value in values)
