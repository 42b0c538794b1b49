"""What training did to the pairs: claims from a diagnosis after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from prefopt.report.claims import WEAK, Claim, Findings, estimated, signed, within
from prefopt.report.estimates import mean, share
from prefopt.report.folders import Pairs


def moved(pairs: Pairs) -> Findings:
    """What training did to the pairs."""
    claims = movement_claims(pairs)
    by = {claim.key: claim for claim in claims}
    dropped, chosen, rejected = by["chosen_dropped"], by["chosen_delta"], by["rejected_delta"]
    count = round(dropped.value * len(pairs))
    sentences = [
        f"The chosen response is less likely than at the start in {count:,} of {len(pairs):,} pairs: {dropped.shown}"
        f"{within(dropped)}. In {by['both_dropped'].shown} of pairs both responses fell.",
        f"On average a chosen response moved by {chosen.shown}{within(chosen)} and a rejected one by "
        f"{rejected.shown}; the gap between them grew in {by['margin_grew'].shown} of pairs.",
        *_signs(by),
        *_squeezed(by),
        *_mass(by),
        *_foretold(by.get("spearman_ln_ches")),
    ]
    return Findings(_verdict(chosen, dropped), tuple(sentences), tuple(claims))


def movement_claims(pairs: Pairs) -> list[Claim]:
    """The numbers of a diagnosis after training, from its table of pairs."""
    chosen, rejected, groups = pairs.numbers["chosen_delta"], pairs.numbers["rejected_delta"], pairs.groups
    claims = [
        estimated("chosen_dropped", "pairs whose chosen response fell", "share", share(chosen < 0, groups)),
        estimated("both_dropped", "pairs where both fell", "share", share((chosen < 0) & (rejected < 0), groups)),
        estimated("margin_grew", "pairs whose gap grew", "share", share(chosen > rejected, groups)),
        estimated("chosen_delta", "movement of chosen responses", "nats", mean(chosen, groups)),
        estimated("rejected_delta", "movement of rejected responses", "nats", mean(rejected, groups)),
        Claim(
            "chosen_delta_per_token",
            "movement of chosen responses, all movement over all tokens",
            float(chosen.sum() / max(pairs.numbers["chosen_tokens"].sum(), 1)),
            "nats per token",
            count=len(pairs),
        ),
        estimated(
            "chosen_delta_mean_per_token",
            "movement of chosen responses, each over its own tokens",
            "nats per token",
            mean(chosen / np.maximum(pairs.numbers["chosen_tokens"], 1), groups),
        ),
        *_track_claims(pairs),
        *_branch_claims(pairs),
    ]
    foretold = pairs.summary["movement"].get("spearman_with_chosen_delta", {}).get("ln_ches")
    if foretold is not None:
        claims.append(
            Claim(
                "spearman_ln_ches",
                "rank correlation of ln-CHES with the movement of chosen responses",
                foretold,
                count=len(pairs),
            )
        )
    return claims


def _track_claims(pairs: Pairs) -> list[Claim]:
    """How likely the likeliest token is along a chosen response, where the table has it."""
    start, now = (pairs.numbers.get(f"greedy_{when}", np.full(len(pairs), np.nan)) for when in ("start", "now"))
    known = ~np.isnan(now - start)
    if not known.any():
        return []
    change = mean((now - start)[known], pairs.groups[known])
    return [estimated("greedy_track_change", "movement of the likeliest tokens' mean", "nats per token", change)]


def _branch_claims(pairs: Pairs) -> list[Claim]:
    known = ~np.isnan(pairs.numbers.get("branch_other_now", np.full(len(pairs), np.nan)))
    if not known.any():
        return []
    groups = pairs.groups[known]

    def column(name: str) -> Any:
        return pairs.numbers[f"branch_{name}"][known]

    return [
        *(
            estimated(
                f"branch_{side}_{when}",
                f"probability of {words}, {moment}",
                "share",
                mean(column(f"{side}_{when}"), groups),
            )
            for side, words in (("chosen", "the chosen token"), ("rejected", "the rejected token"), ("other", "others"))
            for when, moment in (("start", "at the start"), ("now", "now"))
        ),
        estimated(
            "gainer_is_third",
            "pairs where a third token gained most",
            "share",
            share(column("gainer_is_third") > 0, groups),
        ),
    ]


def _verdict(chosen: Claim, dropped: Claim) -> str:
    low, high = (chosen.value if bound is None else bound for bound in (chosen.low, chosen.high))
    if low == high == 0 and dropped.value == 0:
        return "No chosen response moved: policy and start say the same."
    if high < 0:
        return f"Chosen responses became less likely on the whole: {dropped.shown} of them fell."
    if low > 0:
        return f"Chosen responses became more likely on the whole; {dropped.shown} of them fell."
    return f"Chosen responses rose and fell in like measure: {dropped.shown} of them fell."


def _signs(by: Mapping[str, Claim]) -> list[str]:
    names = ("chosen_delta", "chosen_delta_per_token", "chosen_delta_mean_per_token")
    if len({np.sign(by[name].value) for name in names}) == 1:
        return []
    shown = ", ".join(by[name].shown for name in names)
    return [
        f"Per response, per token and as a mean of means the movement has different signs ({shown}): long and short "
        "responses went different ways."
    ]


def _squeezed(by: Mapping[str, Claim]) -> list[str]:
    track = by.get("greedy_track_change")
    if track is None or by["chosen_delta"].value >= 0 or by["rejected_delta"].value >= 0 or track.value <= 0:
        return []
    return [
        f"Both responses fell while the likeliest token at each place of the chosen ones gained {track.shown}: "
        "probability is squeezed into what the model says anyway."
    ]


def _mass(by: Mapping[str, Claim]) -> list[str]:
    if "branch_other_now" not in by:
        return []
    then, now = by["branch_other_start"], by["branch_other_now"]
    return [
        f"Where the two responses part, tokens that belong to neither held {then.shown} of the probability at the "
        f"start and hold {now.shown} now; in {by['gainer_is_third'].shown} of pairs such a third token gained most."
    ]


def _foretold(claim: Claim | None) -> list[str]:
    if claim is None:
        return []
    found = (
        f"The score taken before training (ln-CHES) and the movement have a rank correlation of {signed(claim.value)}"
    )
    if abs(claim.value) < WEAK:
        return [f"{found}: here it says little about which pairs fell."]
    if claim.value < 0:
        return [f"{found}: pairs with a high score fell more, as the score foretells."]
    return [f"{found}: pairs with a high score fell less, against what the score foretells."]
