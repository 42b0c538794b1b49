"""Which tokens of two responses differ."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import SequenceMatcher


def difference_masks(
    chosen: Sequence[int], rejected: Sequence[int], *, skip: Collection[int] = ()
) -> tuple[list[bool], list[bool]]:
    """True for the tokens of each response that an alignment by longest matching blocks replaces, deletes or inserts.

    Ids in `skip`, such as those of stop words, are never marked. The matcher's heuristic that ignores frequent items of
    long sequences is off: it would leave out common tokens of responses of 200 tokens and more.
    """
    masks = ([False] * len(chosen), [False] * len(rejected))
    for tag, a, b, c, d in SequenceMatcher(None, chosen, rejected, autojunk=False).get_opcodes():
        if tag != "equal":
            masks[0][a:b] = [token not in skip for token in chosen[a:b]]
            masks[1][c:d] = [token not in skip for token in rejected[c:d]]
    return masks
