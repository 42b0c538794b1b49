"""Micro-batches with a budget of tokens: every row once, like lengths together, the same for any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import Dataset

from prefopt.data.sampler import TokenSampler, total_lengths
from tests.train.tiny import tiny_rows

LENGTHS = np.random.default_rng(0).integers(5, 400, 300).tolist()
BUDGET = 1024


def rows_of(sampler: TokenSampler) -> list[list[int]]:
    return [[pick.row for pick in batch if pick.weight] for batch in sampler]


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_row_comes_once_an_epoch_and_no_batch_exceeds_the_budget(shuffle: bool) -> None:
    sampler = TokenSampler(LENGTHS, BUDGET, shuffle=shuffle)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = rows_of(sampler)
        assert sorted(row for batch in batches for row in batch) == list(range(300))
        assert max(len(batch) * max(LENGTHS[row] for row in batch) for batch in batches) <= BUDGET
        assert len(batches) == len(sampler)


def test_like_lengths_stand_together_so_that_little_is_padding() -> None:
    batches = rows_of(TokenSampler(LENGTHS, BUDGET))
    padded = sum(len(batch) * max(LENGTHS[row] for row in batch) for batch in batches)
    assert sum(LENGTHS) / padded > 0.94
    in_order = [range(n, n + 5) for n in range(0, 300, 5)]
    assert sum(LENGTHS) / sum(len(batch) * max(LENGTHS[row] for row in batch) for batch in in_order) < 0.7
    assert sum(LENGTHS) / BUDGET / len(batches) > 0.8, "batches are full"


def test_epochs_differ_and_have_one_number_of_batches() -> None:
    sampler, seen = TokenSampler(LENGTHS, BUDGET, seed=3), []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        seen.append(rows_of(sampler))
    assert seen[0] == seen[2] != seen[1]
    assert len(seen[0]) == len(seen[1])
    assert {frozenset(batch) for batch in seen[0]} != {frozenset(batch) for batch in seen[1]}, "rows change company"


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_are_dealt_the_batches_of_one(world: int) -> None:
    one = rows_of(TokenSampler(LENGTHS, BUDGET, seed=1))
    ranks = [rows_of(TokenSampler(LENGTHS, BUDGET, seed=1, rank=rank, world=world)) for rank in range(world)]
    assert len({len(batches) for batches in ranks}) == 1
    dealt = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert dealt[: len(one)] == one
    assert not any(dealt[len(one) :]), "where batches run out a rank is handed a row of weight 0"


def test_a_short_last_round_can_be_left_out() -> None:
    whole = TokenSampler(LENGTHS, BUDGET, world=5)
    cut = TokenSampler(LENGTHS, BUDGET, world=5, drop_last=True)
    assert len(cut) == len(whole) - 1 == (len(whole.bounds) - 1) // 5
    assert all(pick.weight for batch in cut for pick in batch)


def test_a_row_beyond_the_budget_stands_alone() -> None:
    sampler = TokenSampler([50, 10, 10, 70, 10], 64, shuffle=False)
    assert rows_of(sampler) == [[1, 2, 4], [0], [3]]
    assert sampler.too_long == 1


def test_lengths_count_the_prompt_once_and_every_response() -> None:
    rows = tiny_rows(20, responses=3)
    expected = [len(row["prompt_ids"]) + sum(map(len, row["responses"])) for row in rows]
    assert total_lengths(rows).tolist() == expected
    table = Dataset.from_list(rows)
    assert total_lengths(table).tolist() == expected
    assert total_lengths(table.select([7, 3, 3])).tolist() == [expected[7], expected[3], expected[3]]
    assert total_lengths(table.select(range(5, 9))).tolist() == expected[5:9]
