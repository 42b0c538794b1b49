"""Plausible negatives: of the wrong samples of a problem those that look most like right ones.

A deterministic stand-in for a trained generator of negatives (arXiv:2602.03516) and for rounds that keep hard negatives
(arXiv:2501.06521): among wrong samples in the required form, those with the highest score of a reward model, the
highest mean log-probability under the policy, or the greatest similarity to the right response.
"""

import re
from collections.abc import Sequence
from typing import Literal

from rapidfuzz.distance import Indel

from data_tools.pairing.pools import Pool, Sample

By = Literal["score", "mean_logp", "similarity"]
MAX_COMPARED = 5_000
"""Characters of a text that similarity is taken from."""


def best_right(pool: Pool, by: By) -> str | None:
    """The response to prefer: the solution that came with the problem, else the right sample that ranks first."""
    if pool.gold:
        return pool.gold
    right = [sample for sample in pool.samples if sample.right]
    return max(right, key=lambda sample: _value(sample, by, "") or 0.0).text if right else None


def plausible(
    samples: Sequence[Sample], chosen: str, by: By, count: int, form: re.Pattern[str] | None = None
) -> list[tuple[Sample, float]]:
    """The wrong samples that rank first, with their values; ties keep the order of the samples.

    `form` must be found in a sample. Samples without the value that is asked for, and those equal to the chosen
    response, are left out.
    """
    found: dict[str, tuple[Sample, float]] = {}
    for sample in samples:
        fits = sample.right is False and sample.text.split() != chosen.split()
        if not fits or sample.text in found or (form is not None and not form.search(sample.text)):
            continue
        if (value := _value(sample, by, chosen)) is not None:
            found[sample.text] = (sample, value)
    return sorted(found.values(), key=lambda item: -item[1])[:count]


def _value(sample: Sample, by: By, chosen: str) -> float | None:
    if by == "similarity":
        return float(Indel.normalized_similarity(sample.text[:MAX_COMPARED], chosen[:MAX_COMPARED]))
    return sample.score if by == "score" else sample.mean_logp
