"""Shapes with several scored responses: UltraFeedback, and groups of responses with rewards."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from data_tools.reading import Record
from data_tools.shapes.shape import Source


@dataclass(frozen=True)
class Answer:
    """A response, its score, and the mean of its fine-grained ratings if it has any."""

    text: str
    score: float
    fine: float | None = None


def ultrafeedback(source: Source) -> Iterator[Record]:
    """`instruction` and `completions`, each with `response`, a score, and perhaps ratings of single aspects."""
    completions = source.record["completions"]
    answers = [found for item in completions if (found := _answer(source, item)) is not None]
    yield from _rows(source, source.text("instruction"), answers)


def group(source: Source) -> Iterator[Record]:
    """`prompt`, `responses` and `rewards` (or `scores`)."""
    record = source.record
    texts, scores = record["responses"], record.get("rewards", record.get("scores"))
    if not isinstance(texts, list) or not isinstance(scores, list) or len(texts) != len(scores):
        raise source.refuse("bad_scores", "'responses' and 'rewards' must be lists of the same length.")
    pairs = zip(texts, map(_as_number, scores), strict=True)
    answers = [Answer(text, score) for text, score in pairs if isinstance(text, str) and score is not None]
    yield from _rows(source, record["prompt"], answers)


def is_ultrafeedback(record: Mapping[str, Any]) -> bool:
    """Whether a record has an instruction and completions with responses."""
    completions = record.get("completions")
    return (
        isinstance(record.get("instruction"), str)
        and isinstance(completions, list)
        and all(isinstance(item, Mapping) and "response" in item for item in completions)
    )


def _rows(source: Source, prompt: Any, answers: list[Answer]) -> Iterator[Record]:
    """Rows by the choice of pairs; equal scores say nothing about order and make no pair."""
    options = source.options
    answers = _distinct(answers)
    if options.pairs == "group":
        if len(answers) < 2:
            raise source.refuse("too_few_responses", "a group needs two scored responses that differ.")
        yield {"prompt": prompt, "responses": [a.text for a in answers], "rewards": [a.score for a in answers]}
        return
    ranked = sorted(answers, key=lambda answer: -answer.score)
    pairs = [(a, b) for a, b in combinations(ranked, 2) if a.score > b.score and a.score - b.score >= options.min_gap]
    if not pairs:
        raise source.refuse("no_preference", "no two responses have scores that are far enough apart.")
    if options.pairs == "best_worst":
        pairs = [(ranked[0], ranked[-1])]
    elif options.pairs == "best_random":
        pairs = [_best_random(source, [pair for pair in pairs if pair[0] is ranked[0]])]
    for better, worse in pairs:
        scores = {"score_chosen": better.score, "score_rejected": worse.score}
        yield {"prompt": prompt, "chosen": better.text, "rejected": worse.text, **scores}


def _best_random(source: Source, pairs: list[tuple[Answer, Answer]]) -> tuple[Answer, Answer]:
    """The best response and a random other; refused if the mean rating of aspects contradicts the overall score."""
    better, worse = random.Random(f"{source.options.seed}|{source.id}").choice(pairs)
    if better.fine is not None and worse.fine is not None and better.fine < worse.fine:
        raise source.refuse("scores_disagree", "the mean fine-grained rating contradicts the overall score.")
    return better, worse


def _distinct(answers: list[Answer]) -> list[Answer]:
    """Equal texts once, with the first score."""
    return list({answer.text: answer for answer in reversed(answers) if answer.text.strip()}.values())[::-1]


def _answer(source: Source, item: Any) -> Answer | None:
    if not isinstance(item, Mapping) or not isinstance(item.get("response"), str):
        raise source.refuse("no_text", "every completion must have a text 'response'.")
    fine = _fine(item.get("annotations"))
    for name in ("overall_score", "score"):
        if (score := _as_number(item.get(name))) is not None:
            return Answer(item["response"], score, fine)
    if (score := _as_number(item.get("fine-grained_score"))) is not None:
        return Answer(item["response"], score, fine)
    return None if fine is None else Answer(item["response"], fine, fine)


def _fine(annotations: Any) -> float | None:
    """The mean of the ratings of single aspects."""
    if not isinstance(annotations, Mapping):
        return None
    ratings = [_as_number(aspect.get("Rating")) for aspect in annotations.values() if isinstance(aspect, Mapping)]
    found = [rating for rating in ratings if rating is not None]
    return sum(found) / len(found) if found else None


def _as_number(value: Any) -> float | None:
    """A number, or a text that is one; "N/A" is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        number = float(value) if isinstance(value, str) and len(value) < 20 else None
    except ValueError:
        return None
    return number if number is not None and number == number and abs(number) != float("inf") else None
