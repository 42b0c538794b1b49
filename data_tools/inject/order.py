"""In which order kinds of errors are tried on the steps of a solution."""

from collections.abc import Iterator, Sequence

from data_tools.inject.item import SolutionItem
from data_tools.inject.kinds import KINDS


def attempts(
    item: SolutionItem, kinds: Sequence[str], order: Sequence[int], *, plausible: bool = True
) -> Iterator[tuple[str, int]]:
    """Kinds with steps to try them on: all kinds on the first step of `order`, then on the next.

    A kind with hints is looked for in all steps when its turn comes, or it would nearly always be missed.
    Without `plausible` hints are not heeded: they leave out what would not look plausible.
    """
    later = []
    for name in kinds:
        kind = KINDS.get(name)
        if kind is None:  # errors in words
            later.append(name)
            yield name, order[0]
            continue
        if not kind.possible(item.background):
            continue
        if not plausible or (kind.signs is None and not kind.hints):
            later.append(name)
            yield name, order[0]
        elif item.may_have(kind):
            for number in order:
                if item.may_have(kind, number):
                    yield name, number
    for number in order[1:]:
        for name in later:
            yield name, number
