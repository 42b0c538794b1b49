"""Every worked value of the diagnostics sheet, to 1e-9 in float64, and that no value of the file is passed over."""

from __future__ import annotations

import pytest

from tests.diagnostics import (  # noqa: F401  each reproduces some of the entries
    vectors_of_hidden_states,
    vectors_of_losses,
    vectors_of_movement,
    vectors_of_tokens,
)
from tests.diagnostics.vectors import ENTRIES, REPRODUCED, Read, assert_equal, corrupted, numbers


@pytest.mark.parametrize("name", ENTRIES)
def test_worked_values(name: str) -> None:
    entry = ENTRIES[name]
    given = Read(entry["inputs"])
    assert_equal(REPRODUCED[name](given), entry["expected"], name)
    assert given.seen == set(entry["inputs"]), "every input is read"


def test_every_entry_and_nothing_else_is_reproduced() -> None:
    assert REPRODUCED.keys() == ENTRIES.keys()


@pytest.mark.parametrize("name", ENTRIES)
def test_a_change_of_any_expected_number_is_noticed(name: str) -> None:
    entry = ENTRIES[name]
    found = REPRODUCED[name](Read(entry["inputs"]))
    passed_over = []
    for path in numbers(entry["expected"]):
        try:
            assert_equal(found, corrupted(entry["expected"], path))
        except AssertionError:
            continue
        passed_over.append(path)
    assert not passed_over
