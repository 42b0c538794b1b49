from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_tools.steps import SPLITTERS, StepError, align, first_difference, first_wrong_step, split_steps
from tests.data_tools.solutions import PENS, PROBLEMS


@pytest.mark.parametrize(
    ("splitter", "text", "steps"),
    [
        ("numbered", "Think.\nStep 1: a b\nStep 2: c\n d\n\n", [" a b", " c\n d"]),
        ("numbered", PENS, [PENS[7:57], PENS[65:112], PENS[120:]]),
        ("numbered", "no steps at all", []),
        ("paragraph", "one\nstill one\n\ntwo\n \n three \n", ["one\nstill one", "two", "three"]),
        ("line", "  a\n\nb \nc", ["a", "b", "c"]),
        ("line", "a = 1\nb\n#### 5", ["a = 1", "b"]),
        ("sentence", "It is 2.5 m. So long. \nEnd", ["It is 2.5 m.", "So long.", "End"]),
        (
            "code",
            "Say\n```python\nx = 1\n```\n```output\n1\n```\nDone",
            ["Say", "```python\nx = 1\n```", "```output\n1\n```", "Done"],
        ),
        ("auto", "Step 1: a\n\nb\nStep 2: c", [" a\n\nb", " c"]),
        ("auto", "a\n\nb\nc", ["a", "b\nc"]),
        ("auto", "a\nb", ["a", "b"]),
        ("auto", "a b. c d.", ["a b.", "c d."]),
        ("auto", "x\n```\ny\n```", ["x", "```\ny\n```"]),
    ],
)
def test_splitters_give_the_steps(splitter: str, text: str, steps: list[str]) -> None:
    assert list(split_steps(text, splitter)) == steps


def test_kinds_of_code_blocks_are_told_apart() -> None:
    steps = split_steps("Say\n```python\nx\n```\n```output\n1\n```\nDone", "code")
    assert [step.kind for step in steps.steps] == ["text", "code", "output", "text"]


@pytest.mark.parametrize("text", ["Step 2: a", "Step 1: a\nStep 3: b", "Step 1: a\nStep 1: b", "Step 01: a\nStep 5: b"])
def test_steps_with_gaps_are_refused(text: str) -> None:
    with pytest.raises(StepError, match=r"numbered 1, 2, 3 \.\.\. without gaps"):
        split_steps(text, "numbered")
    with pytest.raises(StepError, match="without gaps"):
        split_steps(text, "auto")


def test_an_unknown_splitter_is_told_the_names() -> None:
    with pytest.raises(StepError, match=r"no splitter 'words'\. Splitters: auto, numbered, paragraph"):
        split_steps("a", "words")


@given(st.sampled_from(sorted(SPLITTERS)), st.text(alphabet="ab .\n`Step1:#=", max_size=120))
def test_no_character_is_lost(splitter: str, text: str) -> None:
    try:
        steps = split_steps(text, splitter)
    except StepError:
        return
    last = 0
    for number, step in enumerate(steps.steps, start=1):
        assert last <= step.start <= step.body <= step.end
        assert steps.prefix(number) + steps.tail(number) == text
        assert steps.tail(number).startswith(steps.body(number))
        last = step.end
    assert not steps.steps or steps.header + text[len(steps.header) : last] + steps.footer == text


def test_equal_lists_are_aligned_one_to_one() -> None:
    assert align(["a", "b"], ["a", "b"]) == [(1, 1), (2, 2)]
    assert first_difference(["a", "b"], ["a", "b"]) == 3
    assert first_difference(["a", "b"], ["a", "c"]) == 2


@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        (["one apple", "two pears", "three figs"], ["one apple", "three figs"], [(1, 1), (2, None), (3, 2)]),
        (["one apple", "three figs"], ["one apple", "two pears", "three figs"], [(1, 1), (None, 2), (2, 3)]),
        (["take 5 + 3 = 8", "so 8 * 2 = 16"], ["take 5 + 3 = 9", "so 9 * 2 = 18"], [(1, 1), (2, 2)]),
        (["aaaa"], ["zzzz"], [(1, None), (None, 1)]),
        ([], ["a"], [(None, 1)]),
        ([], [], []),
    ],
)
def test_alignment(left: list[str], right: list[str], pairs: list[tuple[int | None, int | None]]) -> None:
    assert align(left, right) == pairs


@given(st.lists(st.text("ab", max_size=4), max_size=6), st.lists(st.text("ab", max_size=4), max_size=6))
def test_an_alignment_has_every_step_once_and_in_order(left: list[str], right: list[str]) -> None:
    pairs = align(left, right)
    assert [i for i, _ in pairs if i is not None] == list(range(1, len(left) + 1))
    assert [j for _, j in pairs if j is not None] == list(range(1, len(right) + 1))


def test_long_lists_are_matched_by_place() -> None:
    left, right = [f"a{n}" for n in range(300)], [f"b{n}" for n in range(300)]
    assert align(left, right) == [(n, n) for n in range(1, 301)]


def test_right_solutions_have_no_wrong_step() -> None:
    for problem in PROBLEMS:
        found = first_wrong_step(problem.item.steps)
        assert found.step is None, problem.name
        assert found.true >= 2, problem.name


def test_the_first_false_equation_is_found() -> None:
    found = first_wrong_step(split_steps(PENS.replace("96 - 30 = 66", "96 - 30 = 76")))
    assert (found.step, found.equation, found.true, found.checked) == (2, "96 - 30 = 76", 1, 2)


def test_a_wrong_set_up_is_not_seen_by_the_equation_check() -> None:
    assert first_wrong_step(split_steps(PENS.replace("12 * 8 = 96", "12 + 8 = 20"))).step is None
