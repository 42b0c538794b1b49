"""Which edits are kept: verified wrong, plausible, close to the original, and silent about being wrong."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from data_tools.equations import Equation, Value, Verdict, find_equations, judge, magnitude
from data_tools.inject.background import Background

_REVEALING = re.compile(
    r"\b(?:mistake(?:n|nly|s)?|misleading|misinterpreted|incorrect(?:ly)?|wrong(?:ly)?|reconsider|python)\b"
    r"|let[’']?s correct|\bthe correct\b|\bnot correct\b",
    re.IGNORECASE,
)
_STEMS = ("mis", "correct", "wrong", "reconsider", "python")
_ALLOWED = re.compile(r"\b(?:wrong|correct)", re.IGNORECASE)


@dataclass(frozen=True)
class Filters:
    """Limits on an edited step against the original one."""

    min_similarity: float = 0.8
    min_length_ratio: float = 0.7
    max_length_ratio: float = 1.3
    plausible: bool = True

    def close(self, old: str, new: str) -> bool:
        """Whether the edited text is near the original one, and not the same but for white space.

        Similarity is 1 - edit distance / longer length, in characters.
        """
        if not self.min_length_ratio <= len(new) / max(len(old), 1) <= self.max_length_ratio:
            return False
        if old.split() == new.split():
            return False
        return Levenshtein.normalized_similarity(old, new, score_cutoff=self.min_similarity) >= self.min_similarity

    def believable(self, values: Mapping[Value, Value], background: Background) -> bool:
        """Whether every changed value looks like the one it replaces.

        Whole numbers stay whole, decimals get no longer than two, zero does not appear, the sign stays unless negative
        numbers occur anyway, and the magnitude changes by no more than a factor of ten.
        """
        return not self.plausible or all(_looks_alike(old, new, background) for old, new in values.items())


def reveals(prompt: str, text: str) -> bool:
    """Whether a text speaks of being wrong, unless the problem itself does."""
    lower = text.lower()
    if not any(stem in lower for stem in _STEMS):  # nearly always, and sooner known than by the expression
        return False
    return bool(_REVEALING.search(text)) and not _ALLOWED.search(prompt)


def proven_wrong(old: Sequence[Equation], edited_step: str, index: int, *, visible: bool) -> bool:
    """Whether reading the edited step afresh shows the error: equation `index` false, or true with another result.

    Every other equation has to be read as before.
    """
    new = find_equations(edited_step)
    if len(new) != len(old):
        return False
    verdict = judge(new[index])
    if visible:
        return verdict is Verdict.FALSE
    before, after = old[index].site, new[index].site
    return verdict is Verdict.TRUE and before is not None and after is not None and before.value != after.value


def _looks_alike(old: Value, new: Value, background: Background) -> bool:
    if isinstance(old, int) and not isinstance(new, int):
        return False
    if not new or ((old < 0) != (new < 0) and not background.negatives):
        return False
    if not isinstance(new, int) and (10**4 % new.denominator):
        return False
    size, before = magnitude(new), magnitude(old)
    return before <= 10 * size and (size <= 10 * before or not before)
