"""Which rows stand in which micro-batch, on which rank.

One global order per epoch, from seed and epoch alone, cut into global micro-batches that the ranks share: two ranks
with four rows each see what one rank with eight sees. Where rows run out a rank is handed a filler, a row of weight 0,
because every rank must take part in every step. Micro-batches have a number of rows, or a budget of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from prefopt.data.rows import INDEX, LENGTH, MISMATCHED, PROMPT_IDS, RESPONSES, WEIGHT
from prefopt.errors import DataError


class Pick(NamedTuple):
    """A row of the data set and the weight it counts with: 1, or 0 for a filler."""

    row: int
    weight: float = 1.0


class Rows(Protocol):
    """A sized, indexable collection of row dictionaries, such as a `datasets.Dataset`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> dict[str, Any]: ...


class PickedRows(Dataset[dict[str, Any]]):
    """The rows by `Pick`, each with its `index` and `weight` beside its columns.

    With `mismatched` a row also carries another prompt's response: that of the row half the data set away, or the next
    one that has another prompt. It does not depend on who stands in the batch, so ranks and micro-batches agree.
    """

    def __init__(self, rows: Rows, *, mismatched: bool = False) -> None:
        self.rows, self.mismatched = rows, mismatched
        self.longest = max((row[LENGTH] for row in rows), default=0) if mismatched else 0  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, pick: Pick) -> dict[str, Any]:
        row = self.rows[pick.row]
        extra = {MISMATCHED: self._response_of_another(pick.row, row)} if self.mismatched else {}
        return {**row, **extra, INDEX: pick.row, WEIGHT: pick.weight}

    def _response_of_another(self, number: int, row: dict[str, Any]) -> list[int]:
        """Cut so that with this prompt it is no longer than the longest row.

        Raises: `DataError` when all rows have one prompt.
        """
        size = len(self.rows)
        for step in range(size):
            other = self.rows[(number + size // 2 + step) % size]
            if other[PROMPT_IDS] != row[PROMPT_IDS]:
                room = max(self.longest - len(row[PROMPT_IDS]), 1)
                return list(other[RESPONSES][0][:room])
        raise DataError("the loss compares prompts with other prompts' responses, and all rows have the same prompt.")


class MicroBatches(Sampler[list[Pick]]):
    """Micro-batches of one rank, in the order of an epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The next pass goes through the order of this epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        raise NotImplementedError


class BatchSampler(MicroBatches):
    """Micro-batches of a number of rows.

    `batch_size` is per rank. Shuffled by (`seed`, epoch), or in order when `shuffle` is False. With `drop_last` a short
    last global micro-batch is left out.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        *,
        rank: int = 0,
        world: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        self.size, self.batch_size, self.rank, self.world = size, batch_size, rank, world
        self.seed, self.shuffle, self.drop_last = seed, shuffle, drop_last

    def __len__(self) -> int:
        whole, rest = divmod(self.size, self.batch_size * self.world)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[Pick]]:
        order = self.order()
        together = self.batch_size * self.world
        for number in range(len(self)):
            yield self._share(order[number * together : (number + 1) * together])

    def order(self) -> Sequence[int]:
        """Row numbers in the order of this epoch, the same on every rank."""
        if not self.shuffle:
            return range(self.size)
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return torch.randperm(self.size, generator=generator).tolist()

    def _share(self, together: Sequence[int]) -> list[Pick]:
        mine = together[self.rank * self.batch_size : (self.rank + 1) * self.batch_size]
        if len(together) < self.batch_size * self.world:  # the last one is shared out evenly
            mine = together[self.rank :: self.world]
        return [Pick(index) for index in mine] or [Pick(together[0], weight=0.0)]


class TokenSampler(MicroBatches):
    """Micro-batches of rows of like length, each as many as fit `budget` tokens, padding included.

    `lengths` are the tokens of each row. The micro-batches are dealt to the ranks in turn, so that two ranks see in one
    step what one sees in two micro-batches. Lengths are rounded up by at most a sixteenth (to a multiple of 8 where
    they are short) and rows of one rounded length change places from epoch to epoch; how many rows stand in each
    micro-batch does not, and so every epoch has as many steps. A row that is longer than the budget stands alone.
    """

    def __init__(
        self,
        lengths: Sequence[int] | NDArray[np.int64],
        budget: int,
        *,
        rank: int = 0,
        world: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        self.budget, self.rank, self.world = budget, rank, world
        self.seed, self.shuffle, self.drop_last = seed, shuffle, drop_last
        self.lengths = np.asarray(lengths, np.int64)
        self.rounded = _rounded_up(self.lengths)
        self.bounds = cut_by_tokens(np.sort(self.rounded), budget)

    @property
    def too_long(self) -> int:
        """Rows that do not fit the budget."""
        return int((self.lengths > self.budget).sum())

    def __len__(self) -> int:
        whole, rest = divmod(len(self.bounds) - 1, self.world)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[Pick]]:
        batches = self.batches()
        for number in range(len(self)):
            place = number * self.world + self.rank
            mine = batches[place] if place < len(batches) else None
            yield [Pick(int(batches[0][0]), 0.0)] if mine is None else [Pick(int(row)) for row in mine]

    def batches(self) -> list[NDArray[np.int64]]:
        """Row numbers of every micro-batch in the order of this epoch, the same on every rank."""
        generator = np.random.default_rng([self.seed, self.epoch])
        mixed = generator.permutation(len(self.lengths)) if self.shuffle else np.arange(len(self.lengths))
        order = mixed[np.argsort(self.rounded[mixed], kind="stable")]
        found = np.split(order, self.bounds[1:-1])
        return [found[n] for n in generator.permutation(len(found))] if self.shuffle else found


def _rounded_up(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    step = np.maximum(8, 2 ** np.maximum(np.log2(np.maximum(lengths, 1)).astype(np.int64) - 4, 0))
    rounded: NDArray[np.int64] = -(-lengths // step) * step
    return rounded


def cut_by_tokens(ascending: NDArray[np.int64], budget: int) -> NDArray[np.int64]:
    """Where batches of rows in the order of their lengths begin, and the end: as many rows as fit beside the longest.

    A row that is longer than the budget stands alone.
    """
    bounds, start = [0], 0
    for row, length in enumerate(ascending.tolist()):
        if row > start and (row + 1 - start) * length > budget:
            start = row
            bounds.append(row)
    return np.array([*bounds, len(ascending)])


def total_lengths(rows: Rows) -> NDArray[np.int64]:
    """Tokens of each row: its prompt once, and all its responses."""
    if not hasattr(rows, "with_format"):
        every = (rows[number] for number in range(len(rows)))
        return np.array([len(row[PROMPT_IDS]) + sum(map(len, row[RESPONSES])) for row in every], np.int64)
    found = [np.empty(0, np.int64)]
    for batch in rows.select_columns([PROMPT_IDS, RESPONSES]).with_format("arrow").iter(10_000):  # type: ignore[attr-defined]
        prompts, responses = (batch[name].combine_chunks() for name in (PROMPT_IDS, RESPONSES))
        ends = np.cumsum(responses.value_lengths().to_numpy(zero_copy_only=False))
        tokens = np.cumsum([0, *responses.flatten().value_lengths().to_numpy(zero_copy_only=False)])
        found.append(prompts.value_lengths().to_numpy(zero_copy_only=False) + np.diff(tokens[[0, *ends]]))
    return np.concatenate(found)


class PreferenceLoader(DataLoader[dict[str, Any]]):
    """A data loader over `MicroBatches` that passes the epoch on."""

    def set_epoch(self, epoch: int) -> None:
        """The next pass goes through the order of this epoch."""
        assert isinstance(self.batch_sampler, MicroBatches)
        self.batch_sampler.set_epoch(epoch)
