"""In which order kinds of errors are tried on the steps of a solution."""

import re
from collections.abc import Iterator, Sequence

from data_tools.inject.item import SolutionItem
from data_tools.inject.kinds import KINDS, UNCHECKED


def attempts(
    item: SolutionItem, kinds: Sequence[str], order: Sequence[int], *, plausible: bool = True
) -> Iterator[tuple[str, int]]:
    """Kinds with steps to try them on: all kinds on the first step of `order`, then on the next.

    A kind with hints is looked for in all steps when its turn comes, or it would nearly always be missed.
    Without `plausible` hints are not heeded: they leave out what would not look plausible.
    """
    later = []
    for kind in kinds:
        if kind in UNCHECKED:
            hints: tuple[re.Pattern[str], ...] = ()
        elif not KINDS[kind].possible(item.background):
            continue
        else:
            hints = KINDS[kind].hints if plausible else ()
        if not hints:
            later.append(kind)
            yield kind, order[0]
            continue
        if item.may_have(hints):
            yield from ((kind, number) for number in order if item.may_have(hints, number))
    for number in order[1:]:
        for kind in later:
            yield kind, number
