"""Wrong texts look like right ones: what thins edits out, and what that does to real solutions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from benchmarks.inject import classified
from data_tools.equations import read_equations
from data_tools.inject import KINDS, Balance, Mode, RuleInjector, SolutionItem, build_pair, row_random
from data_tools.inject.background import Background
from data_tools.inject.balance import LOOKS, WEIGHTS, Proposal, Shown, gap
from data_tools.inject.changes import Scene
from data_tools.quality.cues import difference, find_cues
from data_tools.records import read_records
from data_tools.steps import split_steps

MODES: tuple[Mode, ...] = get_args(Mode)


def proposal(text: str, kind: str, params: dict[str, object]) -> Proposal:
    scene = Scene(read_equations(text).sites[0], Background("", text), text)
    change = KINDS[kind].apply(scene, params)
    assert change is not None
    return Proposal(scene, params, change, change.replacements, Shown(text, 0, len(text)))


def looks(text: str, kind: str, params: dict[str, object]) -> dict[str, float]:
    found = gap(proposal(text, kind, params))
    return {look: more for look, more in zip(LOOKS, found, strict=True) if more}


def test_looks_are_counted_in_operand_and_result() -> None:
    found = looks("So 10 * 8 = 80 pens.", "digit_change", {"operand": 0, "position": 1, "digit": "5"})
    assert found == {  # 15 * 8 = 120
        "numbers that end in 0": -1,
        "numbers that end in 5": 1,
        "digits": 1,
        "size": pytest.approx(math.log(16 / 11) + math.log(121 / 81)),
        "size of the last": pytest.approx(math.log(121 / 81)),
    }


def test_the_last_number_that_changes_counts_by_itself() -> None:
    found = looks("So 10 * 8 = 80 pens.", "digit_change", {"operand": 1, "position": 0, "digit": "9"})
    assert found["size of the last"] == pytest.approx(math.log(91 / 81))
    assert "last that ends in 0" not in found
    assert (
        looks("So 12 * 5 = 60.", "digit_change", {"operand": 1, "position": 0, "digit": "3"})["last that ends in 0"]
        == -1
    )


def test_an_operand_that_stands_elsewhere_repeats_no_longer() -> None:
    found = looks("With 12 boxes there are 12 * 8 = 96.", "digit_change", {"operand": 0, "position": 1, "digit": "1"})
    assert found["repeated numbers"] == -1
    taken = looks("With 11 boxes there are 12 * 8 = 96.", "digit_change", {"operand": 0, "position": 1, "digit": "1"})
    assert taken["repeated numbers"] == 1


def test_an_operator_of_another_sort_weighs_more_than_one_more_of_the_same() -> None:
    found = looks("So 9 + 3 + 2 = 14.", "operator_flip", {"op": 0, "to": "-"})
    assert found["+"] == pytest.approx(-math.log(3 / 2))
    assert found["-"] == pytest.approx(math.log(2))


def test_an_edit_and_its_inverse_have_opposite_looks() -> None:
    there = gap(proposal("So 16 * 5 = 80.", "digit_transpose", {"operand": 0, "position": 0}))
    back = gap(proposal("So 61 * 5 = 305.", "digit_transpose", {"operand": 0, "position": 0}))
    assert there == tuple(-more for more in back)


def test_edits_are_kept_by_the_odds_of_their_looks() -> None:
    """12 becomes 21, its product gains a digit: weight 1.5 a digit keeps a share exp(-1.5) of these."""
    longer = proposal("So 12 * 5 = 60.", "digit_transpose", {"operand": 0, "position": 0})
    assert dict(zip(LOOKS, gap(longer), strict=True))["digits"] == 1
    weights = tuple(1.5 if look == "digits" else 0.0 for look in LOOKS)
    balance, rng = Balance({"step": {"digit_transpose": weights}}), random.Random(0)
    kept = sum(balance.keeps("step", "digit_transpose", longer, rng) for _ in range(4000)) / 4000
    assert kept == pytest.approx(math.exp(-1.5), abs=0.025)
    shorter = proposal("So 21 * 5 = 105.", "digit_transpose", {"operand": 0, "position": 0})
    assert all(balance.keeps("step", "digit_transpose", shorter, rng) for _ in range(100))
    assert all(Balance({}).keeps("step", "digit_transpose", longer, rng) for _ in range(100))


def test_every_weight_belongs_to_a_kind_and_a_look() -> None:
    assert set(WEIGHTS) == set(MODES)
    for weights in WEIGHTS.values():
        assert set(weights) <= set(KINDS)
        assert {len(row) for row in weights.values()} == {len(LOOKS)}


def test_a_conversion_factor_is_confused_in_both_directions() -> None:
    """Were 60 always 100, and never anything 60, roundness would tell wrong from right."""
    text = "Two hours are 2 * 60 = 120 minutes. A day of 24 hours on 5 machines makes 5 * 24 = 120 hours."
    item = SolutionItem("x", "How many?", split_steps(text), None)
    injector = RuleInjector(kinds=("unit_error",), balance=Balance({}))
    found = [i for seed in range(80) for i in injector.inject(item, row_random(seed, "x", "inject"))]
    edited = " ".join(i.edited_step for i in found)
    assert all(operand in edited for operand in ("2 * 100 ", "2 * 24 ", "5 * 12 ", "5 * 60 "))


@pytest.mark.parametrize("mode", MODES)
def test_looks_do_not_tell_right_from_wrong_in_real_solutions(asset: Callable[[str], Path], mode: Mode) -> None:
    """Each kind that leaves the length free, by the classifier of lint on all its features, values too."""
    records = [record for _, record in zip(range(1500), read_records(asset("data/gsm8k_train.jsonl")), strict=False)]
    kinds = [kind for kind in WEIGHTS[mode] if kind not in ("operand_swap", "unit_error")]  # too rare to say
    pairs = []
    for number, record in enumerate(records):
        kind = kinds[number % len(kinds)]
        prompt, solution = record["prompt"][0]["content"], record["completion"][0]["content"]
        item = SolutionItem(str(number), prompt, split_steps(solution), record["answer"])
        found = RuleInjector(mode=mode, kinds=(kind,)).inject(item, row_random(0, item.id, "inject"))
        pairs += [build_pair(item, injection, mode) for injection in found]
    report = find_cues([difference(row["chosen"], row["rejected"]) for row in pairs], list(range(len(pairs))))
    assert report.pairs > 600
    assert report.accuracy < 0.6


@pytest.mark.parametrize("mode", MODES)
def test_the_usual_mix_has_no_shortcut(asset: Callable[[str], Path], mode: Mode) -> None:
    """The benchmark's classifier on looks, which is told which two texts are a pair, on all kinds together."""
    pairs = []
    for number, record in zip(range(2500), read_records(asset("data/gsm8k_train.jsonl")), strict=False):
        prompt, solution = record["prompt"][0]["content"], record["completion"][0]["content"]
        item = SolutionItem(str(number), prompt, split_steps(solution), record["answer"])
        found = RuleInjector(mode=mode).inject(item, row_random(0, item.id, "inject"))
        pairs += [build_pair(item, injection, mode) for injection in found]
    assert len(pairs) > 2000
    single, paired = classified(pairs)
    assert single < 0.57
    assert paired < 0.6
