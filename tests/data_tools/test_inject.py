from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_tools.inject import (
    KINDS,
    UNCHECKED,
    Balance,
    Filters,
    Injection,
    Mode,
    RuleInjector,
    SolutionItem,
    build_pair,
    dropped_step,
    inject_at,
    relation_flip,
    row_random,
)
from data_tools.inject.background import Background, looks_alike
from data_tools.records import DataToolsError, Record, read_records
from data_tools.steps import split_steps
from tests.data_tools.independent import faults
from tests.data_tools.solutions import PENS, PROBLEMS, Problem

MODES: tuple[Mode, ...] = get_args(Mode)


def rows_of(problem: Problem, injector: RuleInjector, seed: int) -> list[Record]:
    found = injector.inject(problem.item, row_random(seed, problem.name, "inject"))
    return [build_pair(problem.item, injection, injector.mode) for injection in found]


@pytest.mark.parametrize("mode", MODES)
def test_no_row_is_faulty_to_an_independent_reader(mode: Mode) -> None:
    read = 0
    for problem in PROBLEMS:
        for seed in range(40):
            for row in rows_of(problem, RuleInjector(mode=mode), seed):
                found = faults(row, problem.solution)
                assert found in ([], ["unread"]), (found, row)
                assert found == [] or problem.name == "latex"  # which the other reader does not know
                read += not found
    assert read > 200


@pytest.mark.parametrize("mode", MODES)
def test_what_a_solution_denies_is_left_as_it_is(mode: Mode) -> None:
    text = "It is not 5 * 3 = 15 but 5 * 4 = 20 nuts.\nWith 7 more that is 20 + 7 = 27 nuts.\n#### 27"
    item = SolutionItem("a", "5 rows of 4 nuts, and 7 more. How many?", split_steps(text, "auto"), "27")
    made = [found for seed in range(60) for found in RuleInjector(mode=mode).inject(item, row_random(seed, "a", "x"))]
    assert len({found.step for found in made}) == 2
    assert all("not 5 * 3 = 15 but" in found.edited_step for found in made if found.step == 1)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_every_notation_takes_an_error(problem: Problem) -> None:
    assert any(rows_of(problem, RuleInjector(), seed) for seed in range(5))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_made_by_chance_somewhere(kind: str) -> None:
    injector = RuleInjector(kinds=(kind,), filters=Filters(0.5, 0.4, 2.5), balance=Balance({}))
    made = [row for problem in PROBLEMS for seed in range(30) for row in rows_of(problem, injector, seed)]
    assert {row["error_kind"] for row in made} == {kind}


def test_modes_differ_in_what_both_sides_share() -> None:
    problem = PROBLEMS[0]
    for mode in MODES:
        (row,) = rows_of(problem, RuleInjector(mode=mode), 3)
        joined = row["initial_reason_steps"] + row["chosen"]
        assert problem.solution.startswith(joined)
        assert row["complete"] == (joined == problem.solution)
        if mode == "full":
            assert row["initial_reason_steps"] == ""
            assert row["chosen"] == problem.solution
        else:
            assert row["initial_reason_steps"].endswith(f"Step {row['solution_step']}:")
            assert row["first_error_step"] == 1
        if mode != "step":
            assert row["complete"]
            assert row["rejected_answer"] not in (None, row["answer"])


@pytest.mark.parametrize("mode", MODES)
def test_spans_of_steps_cover_both_texts(mode: Mode) -> None:
    for problem in PROBLEMS:
        for row in rows_of(problem, RuleInjector(mode=mode), 1):
            for side in ("chosen", "rejected"):
                spans, text = row[f"{side}_steps"], row[side]
                assert spans[0][0] == 0
                assert all(text[start:end].strip() == text[start:end].rstrip() or start == 0 for start, end in spans)
                assert all(a[1] <= b[0] for a, b in pairwise(spans))
                assert spans[-1][1] <= len(text)
            assert len(row["chosen_steps"]) == len(row["rejected_steps"])


def test_rows_depend_on_seed_and_id_alone() -> None:
    injector = RuleInjector(mode="full")
    first = [rows_of(problem, injector, 7) for problem in PROBLEMS]
    random.seed(123)
    again = [rows_of(problem, injector, 7) for problem in reversed(PROBLEMS)][::-1]
    assert first == again
    assert first != [rows_of(problem, injector, 8) for problem in PROBLEMS]


def test_several_pairs_of_one_solution_differ() -> None:
    rows = rows_of(PROBLEMS[0], RuleInjector(pairs=6), 0)
    assert len(rows) == 6
    assert len({row["rejected"] for row in rows}) == 6


def test_errors_are_carried_to_the_end_of_their_step() -> None:
    """An answer in the last step that contradicted its own equation would give the error away."""
    problem = PROBLEMS[0]
    last = [row for seed in range(200) for row in rows_of(problem, RuleInjector(), seed) if row["solution_step"] == 3]
    assert len(last) > 20
    assert all("The answer is 132" not in row["rejected"] for row in last)


def test_no_negative_number_appears_where_there_was_none() -> None:
    for problem in PROBLEMS:
        rows = [row for seed in range(60) for row in rows_of(problem, RuleInjector(), seed)]
        assert problem.name == "negative" or not any("= -" in row["rejected"] for row in rows)


def test_whole_numbers_stay_whole() -> None:
    for problem in PROBLEMS:
        if "." in problem.prompt.replace(". ", "").rstrip("."):
            continue
        for seed in range(40):
            for row in rows_of(problem, RuleInjector(), seed):
                assert row["rejected"].count(".") == row["chosen"].count("."), row


def test_a_solution_with_a_false_equation_before_the_error_is_left_alone() -> None:
    broken = PENS.replace("12 * 8 = 96", "12 * 8 = 95")
    item = SolutionItem("x", "p", split_steps(broken), "132")
    assert all(not RuleInjector().inject(item, row_random(seed, "x", "inject")) for seed in range(20))


@pytest.mark.parametrize("word", ["mistake", "Wrong", "let's correct", "incorrectly", "reconsider"])
def test_texts_that_speak_of_errors_are_left_alone_unless_the_problem_does(word: str) -> None:
    text = PENS.replace("pens remain", f"pens remain, {word}")
    injector = RuleInjector(kinds=("result_offset",))

    def steps(prompt: str) -> set[int]:
        item = SolutionItem("x", prompt, split_steps(text), "132")
        return {i.step for seed in range(40) for i in injector.inject(item, row_random(seed, "x", "inject"))}

    assert steps("How many?") == {1, 3}
    assert steps("What is wrong here? How many?") == {1, 2, 3}


def test_the_problems_numbers_are_not_carried_on() -> None:
    """66 is the problem's own number: that the third step's 66 comes from the second would be a guess."""
    item = SolutionItem("x", "He wants 66 pens.", split_steps(PENS), "132")
    injector = RuleInjector(mode="full")
    found = [i for seed in range(60) for i in injector.inject(item, row_random(seed, "x", "inject"))]
    assert {injection.step for injection in found} == {3}


def test_kinds_without_proof_are_made_only_when_asked_for() -> None:
    text = (
        "Step 1: Anna has 4 more than twice the apples.\nStep 2: So she has 2 * 5 = 10 apples.\n"
        "Step 3: Then it is 10 + 4 = 14 apples."
    )
    item = SolutionItem("x", "p", split_steps(text), None)
    found = RuleInjector(kinds=UNCHECKED, pairs=4).inject(item, row_random(0, "x", "inject"))
    assert {injection.kind for injection in found} == set(UNCHECKED)
    assert {injection.verified for injection in found} == {"none"}
    usual = [i for seed in range(30) for i in RuleInjector().inject(item, row_random(seed, "x", "inject"))]
    assert usual
    assert not {injection.kind for injection in usual} & set(UNCHECKED)


def test_errors_in_words_pass_the_filters_of_length() -> None:
    """A left-out step is replaced by the next one, which must not be told by its length alone."""
    text = "Step 1: It is 2 * 5 = 10 apples.\nStep 2: {} 10 + 4 = 14.\nStep 3: Now 14 + 1 = 15."
    for said, count in (("That makes", 1), ("With all that she has got from the others, that makes", 0)):
        item = SolutionItem("x", "p", split_steps(text.format(said)), None)
        injector = RuleInjector(kinds=("dropped_step",), pairs=2)
        found = [i for i in injector.inject(item, row_random(0, "x", "inject")) if i.step == 1]
        assert len(found) == count


def test_what_drops_and_what_adds_an_operand_are_made_equally_often(asset: Callable[[str], Path]) -> None:
    """Either gives itself away by the length; together they say nothing about which side is wrong."""
    records = [record for _, record in zip(range(800), read_records(asset("data/gsm8k_train.jsonl")), strict=False)]
    longer = Counter[str]()
    for number, record in enumerate(records):
        prompt, solution = record["prompt"][0]["content"], record["completion"][0]["content"]
        item = SolutionItem(str(number), prompt, split_steps(solution), record["answer"])
        for injection in RuleInjector().inject(item, row_random(0, item.id, "inject")):
            longer[injection.kind.partition("_")[0]] += 1
    assert longer["dropped"] > 20
    assert 1 / 2 < longer["dropped"] / longer["extra"] < 2


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(DataToolsError, match=r"no kind 'typo' of errors\. Kinds: result_offset"):
        RuleInjector(kinds=("typo",))
    with pytest.raises(DataToolsError, match="step weights are one of uniform, early, late; got 'middle'"):
        RuleInjector(step_weights="middle")
    with pytest.raises(DataToolsError, match="'dropped_step' leaves the answer as it is"):
        RuleInjector(mode="full", kinds=("dropped_step",))
    with pytest.raises(DataToolsError, match="there is no site 9: the text has 3 equations"):
        inject_at(PENS, "sign_error", 9, {})
    with pytest.raises(DataToolsError, match="no propagation 'far'"):
        inject_at(PENS, "sign_error", 0, {}, propagate="far")
    with pytest.raises(DataToolsError, match="no kind 'relation_flip' of errors in equations"):
        inject_at(PENS, "relation_flip", 0, {})


def test_late_steps_are_drawn_more_often_when_asked_for() -> None:
    def mean(weights: str) -> float:
        injector = RuleInjector(step_weights=weights)
        steps = [row["solution_step"] for seed in range(300) for row in rows_of(PROBLEMS[0], injector, seed)]
        return sum(steps) / len(steps)

    assert mean("early") < 1.9 < mean("uniform") < 2.1 < mean("late")


def test_a_weight_of_zero_leaves_a_kind_out() -> None:
    injector = RuleInjector(kind_weights={"result_offset": 0})
    kinds = Counter(row["error_kind"] for p in PROBLEMS for seed in range(20) for row in rows_of(p, injector, seed))
    assert "result_offset" not in kinds
    assert len(kinds) > 5


@pytest.mark.parametrize(
    ("kind", "site", "params"),
    [
        ("operand_swap", 0, {"i": 0, "j": 1}),
        ("result_offset", 0, {"delta": 0}),
        ("digit_change", 0, {"operand": 0, "position": 0, "digit": "1"}),
        ("digit_change", 0, {"operand": 0, "position": 0, "digit": "0"}),
        ("dropped_term", 0, {"term": 1}),
        ("dropped_term", 1, {"term": 1}),
        ("dropped_factor", 0, {"operand": 1}),
        ("precedence_error", 0, {}),
        ("unit_error", 0, {"operand": 0}),
        ("operand_substitute", 0, {"operand": 0, "value": "12"}),
    ],
)
def test_what_changes_nothing_or_leaves_no_expression_is_refused(
    kind: str, site: int, params: dict[str, object]
) -> None:
    assert inject_at(PENS, kind, site, params) is None


@pytest.mark.parametrize(
    ("text", "kind", "params", "edited"),
    [
        (
            "It is 20% of 50 = 10 m.",
            "digit_change",
            {"operand": 0, "position": 0, "digit": "4"},
            "It is 40% of 50 = 20 m.",
        ),
        ("It is 10 / 50 = 20% now.", "result_offset", {"delta": 1}, "It is 10 / 50 = 21% now."),
        ("So (5 + 3) * 2 = 16.", "operator_flip", {"op": 0, "to": "-"}, "So (5 - 3) * 2 = 4."),
        ("So 6 x 4 = 24 x", "result_offset", {"delta": 1}, None),
        ("So 6 × 4 = 24.", "operator_flip", {"op": 0, "to": "/"}, "So 6 ÷ 4 = 1.5."),
        ("So 6 times 4 equals 24.", "operator_flip", {"op": 0, "to": "+"}, "So 6 plus 4 equals 10."),
        ("It costs 3 * $5 = $15.", "sign_error", {}, "It costs 3 * $5 = -$15."),
        (r"So \frac{1}{2} \times 8 = 4.", "operator_flip", {"op": 1, "to": "/"}, r"So \frac{1}{2} \div 8 = 0.06."),
        ("It is 5 apples + 3 apples + 2 apples = 10.", "dropped_term", {"term": 1}, "It is 5 apples + 2 apples = 7."),
        ("It is 5 apples + 3 apples + 2 apples = 10.", "dropped_term", {"term": 2}, "It is 5 apples + 3 apples = 8."),
        ("It is 5 + 3 = 8 in all.", "extra_term", {"op": "+", "value": "4"}, "It is 5 + 3 + 4 = 12 in all."),
        ("It is $5-$2 = $3.", "extra_term", {"op": "-", "value": "1"}, "It is $5-$2-$1 = $2."),
        ("So 6 × 4 = 24.", "extra_factor", {"op": "/", "value": "3"}, "So 6 × 4 ÷ 3 = 8."),
        ("So 2.50 * 4 = 10.", "extra_factor", {"op": "*", "value": "2"}, "So 2.50 * 4 * 2 = 20."),
        ("-$4 + $9 = $5", "operand_swap", {"i": 0, "j": 1}, "-$9 + $4 = -$5"),
    ],
)
def test_edits_keep_the_notation(text: str, kind: str, params: dict[str, object], edited: str | None) -> None:
    if edited is None:
        with pytest.raises(DataToolsError, match="there is no site 0"):
            inject_at(text, kind, 0, params)
        return
    found = inject_at(text, kind, 0, params)
    assert found is not None
    assert found.text == edited


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("3 * 4 = 12. Then 20 - 12 = 8.", "a negative number would follow an operator"),
        ("1 * 2 = 2. Then 2 + 5 = 7.", "2 is too small to say where it comes from"),
        ("3 * 4 = 12. Then 12 / 7 = 1.71.", "too many decimals"),
        ("3 * 4 = 12. Then 12 + y = 15.", "an equation that cannot be read"),
    ],
)
def test_values_are_not_carried_on_by_guesswork(text: str, reason: str) -> None:
    assert inject_at(text, "sign_error", 0, {}, propagate="equation") is not None
    assert inject_at(text, "sign_error", 0, {}, propagate="chain") is None, reason


def test_prose_follows_only_when_asked_for() -> None:
    text = "First 3 * 4 = 12.\nThe 12 eggs fill a box, and 12 + 5 = 17.\n#### 17"
    params = {"delta": 1}
    plain = inject_at(text, "result_offset", 0, params, propagate="chain")
    told = inject_at(text, "result_offset", 0, params, propagate="chain+prose")
    assert plain is not None
    assert told is not None
    assert plain.text == "First 3 * 4 = 13.\nThe 12 eggs fill a box, and 13 + 5 = 18.\n#### 18"
    assert told.text == "First 3 * 4 = 13.\nThe 13 eggs fill a box, and 13 + 5 = 18.\n#### 18"


def test_relations_keep_their_case_and_are_left_alone_beside_equations() -> None:
    assert relation_flip("Twice the apples") == "Half the apples"
    assert relation_flip("AT LEAST four") == "AT MOST four"
    assert relation_flip("the increases") == "the decreases"
    assert relation_flip("more than 3 = 4") is None
    assert relation_flip("no relation") is None


def test_the_last_step_is_never_left_out() -> None:
    assert dropped_step(split_steps(PENS), 3) is None


@given(st.integers(2, 60), st.integers(2, 60), st.integers(2, 60), st.integers(0, 10**6), st.sampled_from(MODES))
def test_any_numbers_give_proven_errors(a: int, b: int, c: int, seed: int, mode: Mode) -> None:
    solution = (
        f"The first shelf takes {a} * {b} = {a * b} books in all.\n"
        f"With the second one there are {a * b} + {c} = {a * b + c} books in all.\n#### {a * b + c}"
    )
    problem = Problem("n", f"There are {a} rows of {b} books, and {c} more.", solution, str(a * b + c))
    for row in rows_of(problem, RuleInjector(mode=mode), seed):
        assert faults(row, solution) == []


@pytest.mark.parametrize("mode", MODES)
def test_real_solutions_give_proven_errors(asset: Callable[[str], Path], mode: Mode) -> None:
    records = [record for _, record in zip(range(600), read_records(asset("data/gsm8k_train.jsonl")), strict=False)]
    rows: list[tuple[Record, str]] = []
    injector = RuleInjector(mode=mode)
    for number, record in enumerate(records):
        prompt, solution = record["prompt"][0]["content"], record["completion"][0]["content"]
        item = SolutionItem(str(number), prompt, split_steps(solution), record["answer"])
        found = injector.inject(item, row_random(0, item.id, "inject"))
        rows += [(build_pair(item, injection, mode), solution) for injection in found]
    assert len(rows) / len(records) > (0.95 if mode == "step" else 0.8)
    assert [fault for row, solution in rows for fault in faults(row, solution) if fault != "unread"] == []
    assert sum("unread" in faults(row, solution) for row, solution in rows) <= len(rows) // 100
    kinds = Counter(row["error_kind"] for row, _ in rows)
    assert max(kinds.values()) < 0.3 * len(rows)


def test_an_injection_is_plain_data() -> None:
    (injection,) = RuleInjector().inject(PROBLEMS[0].item, row_random(0, "x", "inject"))
    assert isinstance(injection, Injection)
    assert injection.verified == "equation"
    assert injection.old_value != injection.new_value


def test_an_error_below_the_tolerance_of_graders_is_none() -> None:
    """3,499,998 is 3,500,000 to a comparison with a relative tolerance of 1e-6."""
    background = Background("", "")
    assert not looks_alike(3_500_000, 3_499_998, background)
    assert looks_alike(3_500_000, 3_499_000, background)
