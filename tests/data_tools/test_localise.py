"""The first wrong step: by equations, labels, rollouts, a judge, and by several of them in turn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from data_tools.generators import Generator
from data_tools.pipelines.judge import ByJudge, first_wrong_verdict, judge_prompt, needs_diagram
from data_tools.pipelines.localise import ByEquations, ByLabels, ByRollouts, Candidate, InTurn, Localiser
from data_tools.pipelines.problem import Problem
from data_tools.steps import split_steps
from tests.data_tools.adder import Adder, problem


def made(number: int, length: int) -> Problem:
    row = problem(number, length)
    return Problem(row["id"], 1, "f:1", row["prompt"], row["prompt"], row["prompt"], row["answer"], None, row)


def wrong_solution(item: Problem, at: int, *, slip: bool = False, label: int | None = None) -> Candidate:
    """Right up to step `at`, where 5 too much is added: a false equation if `slip`, else a true one."""
    numbers = [int(n) for n in item.text.removeprefix("Add ").rstrip(".").split(", ")]
    value, text = numbers[0], ""
    for step, number in enumerate(numbers[1:], start=1):
        extra = 5 if step == at else 0
        result = value + number + extra
        text += f"Step {step}: {value} + {number if slip else number + extra} = {result}.\n"
        value = result
    return Candidate(item, split_steps(f"{text}The answer is {value}."), label)


def steps_of(localiser: Localiser, candidates: Sequence[Candidate]) -> list[int | None]:
    return [location.step for location in localiser.locate(candidates)]


@pytest.mark.parametrize("length", [2, 3, 6, 10])
def test_rollouts_find_the_step_after_which_nothing_is_saved(length: int) -> None:
    candidates = [wrong_solution(made(n, length), at) for n, at in enumerate(range(1, length))]
    model = Adder(wrong=0)
    assert steps_of(ByRollouts(model, rollouts=2), candidates) == list(range(1, length))
    steps = length - 1
    assert len(model.asked) <= 2 * steps * math.ceil(math.log2(steps)), "as many rounds as there are halvings"


def test_rollouts_continue_behind_whole_steps() -> None:
    candidate, model = wrong_solution(made(0, 6), 3), Adder(wrong=0)
    ByRollouts(model, rollouts=1).locate([candidate])
    assert {request.prefill for request in model.asked} <= {
        candidate.steps.text[: candidate.steps[step].end] for step in range(1, 6)
    }


def test_rollouts_of_one_solution_do_not_depend_on_the_others() -> None:
    candidates = [wrong_solution(made(n, 6), 1 + n % 5) for n in range(8)]
    together = steps_of(ByRollouts(Adder(wrong=0.9), rollouts=3, seed=1), candidates)
    alone = [steps_of(ByRollouts(Adder(wrong=0.9), rollouts=3, seed=1), [candidate])[0] for candidate in candidates]
    assert together == alone


def test_rollouts_that_fail_locate_nothing_and_say_why() -> None:
    one, two = wrong_solution(made(0, 5), 2), wrong_solution(made(1, 5), 2)
    locations = ByRollouts(Adder(wrong=0, failing=two.problem.text)).locate([one, two])
    assert [location.step for location in locations] == [2, None]
    assert locations[1].reason == "http_500"


def test_equations_see_slips_and_no_wrong_set_ups() -> None:
    slip, set_up = wrong_solution(made(0, 5), 3, slip=True), wrong_solution(made(0, 5), 3)
    assert steps_of(ByEquations(), [slip, set_up]) == [3, None]
    assert ByEquations().locate([set_up])[0].reason == "no_false_equation"


def test_labels_are_taken_as_they_are_if_they_can_be_right() -> None:
    candidates = [wrong_solution(made(0, 5), 3, label=label) for label in (3, None, 0, 5)]
    locations = ByLabels().locate(candidates)
    assert [location.step for location in locations] == [3, None, None, None]
    assert [location.reason for location in locations[1:]] == ["no_label", "label_out_of_range", "label_out_of_range"]


def test_in_turn_the_next_gets_what_the_one_before_left() -> None:
    slip, set_up, lost = (wrong_solution(made(n, 5), 3, slip=n == 0) for n in range(3))
    model: Generator = Adder(wrong=0, failing=lost.problem.text)
    locations = InTurn([ByEquations(), ByRollouts(model)]).locate([slip, set_up, lost])
    assert [(location.step, location.by) for location in locations] == [
        (3, "equations"),
        (3, "rollouts"),
        (None, "rollouts"),
    ]
    assert locations[2].detail == "equations: no_false_equation; no"


class Judge(Adder):
    """Says what it is told to."""

    def __init__(self, said: str) -> None:
        super().__init__()
        self.said = said

    def text(self, request: object) -> str:
        return self.said


@pytest.mark.parametrize(
    ("said", "neutral_is_error", "step"),
    [
        ("Analysis.\nFinal decision:\nStep 1: correct\nStep 2: incorrect", True, 2),
        ("Final decision:\nStep 1: correct\nStep 2: neutral\nStep 3: incorrect", True, 2),
        ("Final decision:\nStep 1: correct\nStep 2: neutral\nStep 3: incorrect", False, 3),
        ("**Final Decision:**\n- **Step 1**: Correct\n- **Step 2**: Incorrect", True, 2),
        ("Step 1: incorrect, at first sight.\nFinal decision:\nStep 1: correct\nStep 2: incorrect", True, 2),
        ("Final decision:\nStep 1: incorrect\nOn second thoughts.\nFinal decision:\nStep 2: incorrect", True, 2),
        ("Final decision:\nStep 1: correct", True, None),
        ("Step 2: incorrect", True, None),
        ("", True, None),
    ],
)
def test_verdicts_count_behind_the_last_heading(said: str, neutral_is_error: bool, step: int | None) -> None:
    assert first_wrong_verdict(said, neutral_is_error=neutral_is_error) == step


def test_a_judge_locates_and_its_words_are_kept() -> None:
    candidate = wrong_solution(made(0, 5), 3)
    said = "Final decision:\nStep 1: correct\nStep 2: correct\nStep 3: incorrect"
    (location,) = ByJudge(Judge(said)).locate([candidate])
    assert (location.step, location.by, location.said) == (3, "judge", said)
    (beyond,) = ByJudge(Judge("Final decision: Step 9: incorrect")).locate([candidate])
    assert (beyond.step, beyond.reason) == (None, "verdict_out_of_range")
    (silent,) = ByJudge(Judge("I cannot say.")).locate([candidate])
    assert (silent.step, silent.reason, silent.said) == (None, "no_verdict", "I cannot say.")


def test_a_judge_sees_problem_answer_and_numbered_steps() -> None:
    candidate = wrong_solution(made(0, 3), 1)
    prompt = judge_prompt(candidate)
    assert candidate.problem.text in prompt
    assert f"The right answer: {candidate.problem.answer}" in prompt
    assert all(f"Step {number}: {body.strip()}" in prompt for number, body in enumerate(candidate.steps, start=1))


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("In the diagram, what is x?", True),
        ("In the diagram, what is x? [asy] draw((0,0)--(1,1)); [/asy]", False),
        ("See the figure.", True),
        ("Figure out how many apples there are.", False),
    ],
)
def test_problems_with_a_picture_that_is_not_there_are_not_judged(text: str, needs: bool) -> None:
    assert needs_diagram(text) is needs
