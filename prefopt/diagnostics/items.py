"""Rows of pairs -> what a model has to read: each prompt once, with all its distinct responses, in batches of a size.

A plan depends on the rows and the budget alone, so that any number of processes, and a run that was resumed, see the
same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefopt.data import rows
from prefopt.diagnostics.pairs import common_prefix

WINDOW = 1024
"""Rows among which those of one prompt are brought together and sorted by length."""

_PARTS_PER_WINDOW = 32
_PADDING = 1 / 16
"""Share of a batch that may be padding."""


@dataclass(frozen=True)
class PairOf:
    """One pair: the number of its row, which of the row's rejected responses it has, and both places in the item."""

    row: int
    rejected_index: int
    chosen: int
    rejected: int


@dataclass
class Item:
    """A prompt with distinct responses: token ids, which of them are scored, and the pairs they form."""

    prompt: list[int]
    responses: list[list[int]] = field(default_factory=list)
    masks: list[list[bool]] = field(default_factory=list)
    pairs: list[PairOf] = field(default_factory=list)
    _places: dict[tuple[tuple[int, ...], tuple[bool, ...]], int] = field(default_factory=dict, repr=False)

    @property
    def cost(self) -> int:
        """Tokens in one row that holds the prompt and every response."""
        return len(self.prompt) + sum(map(len, self.responses))

    def added_cost(self, responses: Sequence[list[int]], masks: Sequence[list[bool]]) -> int:
        """Tokens by which these responses, those that are new, would lengthen the row."""
        new = {_key(ids, mask): len(ids) for ids, mask in zip(responses, masks, strict=True)}
        return sum(length for key, length in new.items() if key not in self._places)

    def add(self, number: int, responses: Sequence[list[int]], masks: Sequence[list[bool]]) -> None:
        """The pairs of a row, whose first response is the chosen one."""
        places = [self._place(ids, mask) for ids, mask in zip(responses, masks, strict=True)]
        self.pairs += [PairOf(number, index, places[0], place) for index, place in enumerate(places[1:])]

    def _place(self, ids: list[int], mask: list[bool]) -> int:
        key = _key(ids, mask)
        if key not in self._places:
            self._places[key] = len(self.responses)
            self.responses.append(ids)
            self.masks.append(mask)
        return self._places[key]

    def row(self, *, shared: int = 0) -> dict[str, Any]:
        """As the collator reads it, the first `shared` tokens of every response counted with the prompt."""
        return {
            rows.PROMPT_IDS: self.prompt + self.responses[0][:shared],
            rows.RESPONSES: [ids[shared:] for ids in self.responses],
            rows.MASKS: [mask[shared:] for mask in self.masks],
        }

    def shared_beginning(self) -> int:
        """Tokens that all responses begin with, short of the last scored token of any of them.

        Their states are the same in every response, so they are computed once, behind the prompt.
        """
        shared = min(_last(mask) for mask in self.masks)
        for ids, mask in zip(self.responses[1:], self.masks[1:], strict=True):
            shared = min(shared, common_prefix(self.responses[0], ids), common_prefix(self.masks[0], mask))
        return max(shared, 0)


def _key(ids: list[int], mask: list[bool]) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    return tuple(ids), tuple(mask)


def _last(mask: list[bool]) -> int:
    """Place of the last scored token, -1 for none."""
    return next((place for place in range(len(mask) - 1, -1, -1) if mask[place]), -1)


Batch = list[Item]
PairRecord = dict[str, Any]
"""What is known of one pair, by the name of its column."""


def windows(table: Any, size: int = WINDOW) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Rows of a data set a window at a time, each window with the number of its first row."""
    columns = [rows.ID, rows.PROMPT_IDS, rows.RESPONSES, rows.MASKS]
    for start in range(0, len(table), size):
        batch = table[start : start + size]
        lines = zip(*(batch[name] for name in columns), strict=True)
        yield start, [dict(zip(columns, line, strict=True)) for line in lines]


def items_of(window: Sequence[dict[str, Any]], start: int, *, tokens: int) -> list[Item]:
    """The window's rows by prompt. A prompt whose responses exceed the budget becomes several items."""
    current: dict[tuple[int, ...], Item] = {}
    found: list[Item] = []
    for number, row in enumerate(window, start):
        prompt = tuple(row[rows.PROMPT_IDS])
        item = current.get(prompt)
        if item is None or item.cost + item.added_cost(row[rows.RESPONSES], row[rows.MASKS]) > tokens:
            item = current[prompt] = Item(list(prompt))
            found.append(item)
        item.add(number, row[rows.RESPONSES], row[rows.MASKS])
    return found


def batches_of(items: Sequence[Item], *, tokens: int) -> list[Batch]:
    """Items of similar length together, as many as fit `tokens` with padding; one that exceeds them stands alone."""
    found: list[Batch] = []
    held = 0
    for item in sorted(items, key=lambda item: (item.cost, item.pairs[0].row)):
        padded = item.cost * (len(found[-1]) + 1) if found else 0  # the newest is the widest
        if not found or padded > tokens or padded - held - item.cost > _PADDING * padded:
            found.append([])
            held = 0
        found[-1].append(item)
        held += item.cost
    return found


def parts_of(batches: Sequence[Batch]) -> list[list[Batch]]:
    """Batches in the portions in which results are written: a process takes whole ones, and a kill loses one."""
    size = max(1, len(batches) // _PARTS_PER_WINDOW)
    return [list(batches[start : start + size]) for start in range(0, len(batches), size)]
