"""How to read each figure, and what to try: the words of both forms of a report."""

from __future__ import annotations

from dataclasses import dataclass

READING = {
    "claims": (
        "Log-probabilities are natural logarithms, in nats: −0.7 nats is half as likely, −2.3 nats a tenth. "
        "Intervals are at 95 % and treat the pairs of one prompt as belonging together; they are about other prompts"
        " of this kind and say nothing of another seed of training. A falling chosen response is not by itself a "
        "fault: preference losses reward the gap, and what matters is what the model says instead."
    ),
    "scores": (
        "CHES compares the hidden states behind the two responses: the higher, the more alike they look to the "
        "model, and the more a push away from the rejected response is expected to take the chosen one along. "
        "ln-CHES divides by lengths and is the one to rank by; plain CHES mixes in the length gap. Scores compare "
        "within one model and one data set, not across models. What lies outside of the axis is counted in the "
        "outermost bars."
    ),
    "movement": (
        "Each point is one pair. After training, points below the line at zero are chosen responses that lost "
        "probability; if the score foretells it, the cloud sinks towards the right. A cloud without a slope means "
        "that the score said little about this run. Before training the same plane shows whether high scores come "
        "from length or from near-duplicates. Hover over, tap or focus a point to read its pair; arrow keys move to "
        "the neighbours."
    ),
    "mass": (
        "Up to the first differing token both responses share their prefix, so one distribution holds both next "
        "tokens. A preference learned well moves probability from the rejected token to the chosen one. When both "
        "lose, it went to other tokens: look at which ones gained, since that decides whether the fall is harmless "
        "wording or a change of meaning."
    ),
    "curves": (
        "Against the reference, both responses start at zero. A widening gap with a rising chosen curve is what one "
        "hopes for; both falling together is likelihood displacement; a falling chosen curve with a loss that still "
        "sinks means that the loss is bought by pushing the rejected response down. Values are means over the rows "
        "of the logged steps, each of which sees other rows: trends count, single points do not. The probe set is the "
        "same rows each time. When both responses fall there while the likeliest tokens gain, probability is squeezed "
        "into what the model says anyway."
    ),
    "pairs": (
        "Words that the other response lacks are marked. Read a few before filtering anything: pairs that differ in "
        "one number or one name are often the lesson and not the noise."
    ),
    "settings": "Rows in which the columns differ come first.",
}


@dataclass(frozen=True)
class Remedy:
    """Something to try: what it does, the recipe that does it, and what it costs."""

    name: str
    text: str
    recipe: str = ""
    command: str = ""


REMEDIES = (
    Remedy(
        "DPOP",
        "adds a price for every nat by which the chosen response falls below the reference. The most direct remedy; "
        "it slows the learning of the gap, and lam sets how much.",
        "recipes/losses/dpop.yaml",
    ),
    Remedy(
        "An NLL term",
        "keeps teaching the chosen response while DPO separates the pair. Also teaches its style, so use it where "
        "the chosen responses are worth imitating.",
        "recipes/losses/irpo.yaml",
    ),
    Remedy(
        "DPO-Shift",
        "scales the rejected response's part down: a smaller gap, a likelier chosen response.",
        "recipes/losses/dpo_shift.yaml",
    ),
    Remedy(
        "Cal-DPO",
        "pulls both log-ratios to fixed targets, so that the chosen one has no reason to fall along.",
        "recipes/losses/cal_dpo.yaml",
    ),
    Remedy(
        "Filtering",
        "trains on the pairs with the lowest scores. Shown to help on one small refusal task only: compare with a "
        "random subset of the same size before believing in it.",
        command="prefopt diagnose --model MODEL --data PAIRS --out DIR --keep-lowest 0.05",
    ),
)
