"""Errors in words: a relation misread, a step left out."""

import re

from data_tools.steps import Steps

_PAIRS = (
    ("more than", "less than"),
    ("twice", "half"),
    ("increase", "decrease"),
    ("increases", "decreases"),
    ("increased", "decreased"),
    ("at least", "at most"),
    ("before", "after"),
    ("maximum", "minimum"),
)
_OPPOSITE = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
_PHRASE = re.compile(r"\b(?:" + "|".join(sorted(_OPPOSITE, key=len, reverse=True)) + r")\b", re.IGNORECASE)
_MARKER = re.compile(r"^Step (\d+):", re.MULTILINE)


def relation(text: str) -> tuple[int, int, str] | None:
    """The earliest relation of the table in a text without equations, and its opposite in the same case."""
    found = None if "=" in text else _PHRASE.search(text)
    if found is None:
        return None
    phrase = found.group()
    opposite = _OPPOSITE[phrase.lower()]
    if phrase[0].isupper():
        opposite = opposite.upper() if phrase.isupper() else opposite[0].upper() + opposite[1:]
    return found.start(), found.end(), opposite


def relation_flip(text: str) -> str | None:
    """The text with its earliest relation turned round, or None."""
    found = relation(text)
    return None if found is None else text[: found[0]] + found[2] + text[found[1] :]


def dropped_step(steps: Steps, number: int) -> str | None:
    """The solution without a step, later ones renumbered; None for the last step, which nothing uses."""
    if not 1 <= number < len(steps):
        return None
    kept = steps.text[: steps[number].start] + steps.text[steps[number + 1].start :]
    return _renumbered(kept)


def _renumbered(text: str) -> str:
    count = 0

    def next_marker(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"Step {count}:"

    return _MARKER.sub(next_marker, text)
