"""What the scores of pairs say before training: claims from a diagnosis before it."""

from __future__ import annotations

import numpy as np

from prefopt.report.claims import WEAK, Claim, Findings, estimated, signed, within
from prefopt.report.estimates import mean, share
from prefopt.report.folders import Pairs

NEAR = 0.1
"""Normalised edit distance below which two responses count as near-duplicates."""


def scored(pairs: Pairs) -> Findings:
    """What the scores say before training."""
    claims = score_claims(pairs)
    by = {claim.key: claim for claim in claims}
    sentences = [
        "The scores rank pairs by how likely training is to lower their chosen response. They do not say how many will "
        "fall: that depends on the loss, the learning rate and the number of steps."
    ]
    if "ln_ches_median" in by:
        high, middle = by["ln_ches_high"], by["ln_ches_median"]
        sentences.append(f"Half of the pairs have an ln-CHES above {middle.shown}, one in twenty above {high.shown}.")
    near = by["near_duplicates"]
    sentences.append(
        f"{near.shown} of pairs{within(near)} are near-duplicates: under {100 * NEAR:.0f} % of their tokens differ."
    )
    bias = by.get("spearman_length")
    if bias is not None and abs(bias.value) >= WEAK:
        side = "rejected" if bias.value < 0 else "chosen"
        sentences.append(
            f"CHES ranks pairs by length as well (rank correlation with the length gap {signed(bias.value)}): pairs "
            f"whose {side} response is the longer one score higher. ln-CHES is the one to rank by."
        )
    flagged = by["flagged"]
    if flagged.value:
        sentences.append(f"{flagged.shown} of pairs are flagged (identical, empty or cut), so their scores mean less.")
    lost = sum(pairs.summary.get("data", {}).get("lost", {}).values())
    if lost:
        sentences.append(f"{lost:,} records could not be used and have no score; summary.json says why.")
    verdict = f"{len(pairs):,} pairs are ranked by how likely training is to lower their chosen response."
    return Findings(verdict, tuple(sentences), tuple(claims))


def score_claims(pairs: Pairs) -> list[Claim]:
    """The numbers of a diagnosis before training, from its table of pairs."""
    scores = pairs.numbers["ln_ches"][np.isfinite(pairs.numbers["ln_ches"])]
    claims = []
    if len(scores):
        middle, high = np.quantile(scores, (0.5, 0.95))
        claims = [
            Claim("ln_ches_median", "median ln-CHES", float(middle), count=len(scores)),
            Claim("ln_ches_high", "ln-CHES that one pair in twenty exceeds", float(high), count=len(scores)),
        ]
    near = pairs.numbers["edit_distance"] < NEAR
    claims += [
        estimated("near_duplicates", "near-duplicates", "share", share(near, pairs.groups)),
        estimated("flagged", "flagged pairs", "share", share(pairs.flagged, pairs.groups)),
        estimated("length_gap", "chosen longer by", "tokens", mean(pairs.numbers["length_gap"], pairs.groups)),
    ]
    bias = pairs.summary.get("spearman_with_length_gap", {}).get("ches")
    if bias is not None:
        claims.append(Claim("spearman_length", "rank correlation of CHES with the length gap", bias, count=len(pairs)))
    return claims
