"""Which edits are kept: verified wrong, plausible, close to the original, and silent about being wrong."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from data_tools.equations import Equation, Value, Verdict, find_equations, judge
from data_tools.equations.check import converts
from data_tools.equations.plain import equations_from, plain_matches, plain_sums
from data_tools.inject.background import Background, looks_alike

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

    def close(self, old: str, new: str, distance: int | None = None) -> bool:
        """Whether the edited text is near the original one, and not the same but for white space.

        Similarity is 1 - edit distance / longer length, in characters. `distance` bounds the edit distance from above,
        where numbers are known to be all that differs.
        """
        if not self.comparable(old, new):
            return False
        if distance is not None and distance <= (1 - self.min_similarity) * max(len(old), len(new)):
            return True
        if old.split() == new.split():
            return False
        return Levenshtein.normalized_similarity(old, new, score_cutoff=self.min_similarity) >= self.min_similarity

    def comparable(self, old: str, new: str) -> bool:
        """Whether neither text is much longer than the other."""
        return self.min_length_ratio <= len(new) / max(len(old), 1) <= self.max_length_ratio

    def believable(self, values: Mapping[Value, Value], background: Background) -> bool:
        """Whether every changed value looks like the one it replaces (`looks_alike`)."""
        return not self.plausible or all(looks_alike(old, new, background) for old, new in values.items())


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
    matches = plain_matches(edited_step, 0, len(edited_step))
    sums = plain_sums(edited_step, matches)
    if sums is not None:
        if len(sums) != len(old):
            return False
        value, stated, units = sums[index]
        before = old[index].site
        if not visible:
            return value == stated and before is not None and before.value != stated
        if value is not None and not units and not converts(value, stated):
            return value != stated
    new = find_equations(edited_step) if matches is None else equations_from(edited_step, len(edited_step), matches)
    if len(new) != len(old):
        return False
    verdict = judge(new[index])
    if visible:
        return verdict is Verdict.FALSE
    site, after = old[index].site, new[index].site
    return verdict is Verdict.TRUE and site is not None and after is not None and site.value != after.value
