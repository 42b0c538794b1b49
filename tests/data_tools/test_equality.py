from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_tools.equality import clean_answer, compare_answers, equal_answers
from data_tools.extraction import answer_number, extract_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{\frac{1}{2}} it is", r"\frac{1}{2}"),
        (r"\boxed{1} and then \boxed{x^{2}+1}", "x^{2}+1"),
        (r"\boxed{3} #### 4", "3"),
        ("#### 4\nThe answer is 5.", "4"),
        ("#### 1,000", "1,000"),
        ("The answer is: 5 apples.", "5 apples"),
        ("the final answer is **7**.", "7"),
        ("The answer is 2.5.", "2.5"),
        ("Work.\nA: 18", "18"),
        ("Answer: blue", "blue"),
        (r"\boxed{unclosed", None),
        ("nothing here", None),
        ("", None),
    ],
)
def test_the_first_kind_of_statement_wins(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


def test_the_last_number_counts_only_when_asked_for() -> None:
    text = "He had 3.\nNow he has 4 or 1,005 of them."
    assert extract_answer(text) is None
    assert extract_answer(text, last_number=True) == "1,005"
    assert extract_answer("No number. None.", last_number=True) is None


def test_the_number_of_the_answer_is_found_in_place() -> None:
    text = "Step 1: 5.\nThe answer is $1,250.50 in all."
    number = answer_number(text)
    assert number is not None
    assert text[number.first : number.last] == "1,250.50"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("7", "7.0"),
        ("1,000", "1000"),
        ("$18", "18 dollars"),
        (r"\text{18 apples}", "18"),
        ("60%", r"60\%"),
        (r"\frac{1}{2}", "0.5"),
        (r"-\dfrac{3}{4}", "-0.75"),
        (r"\left(1\right)", "(1)"),
        ("1e3", "1000"),
        ("blue.", "blue"),
        ("0.3333333", "1/3"),
        (r"2\sqrt{2}", r"\sqrt{8}"),
        ("x+1", "1+x"),
        ("(x-1)(x+1)", "x^2-1"),
    ],
)
def test_the_same_answers(a: str, b: str) -> None:
    assert compare_answers(a, b) is True
    assert compare_answers(b, a) is True


@pytest.mark.parametrize(
    ("a", "b"), [("7", "8"), ("0.0004", "0.0012"), ("0.333", "1/3"), ("x", "y"), (r"\sqrt{2}", "2"), ("3", "-3")]
)
def test_different_answers(a: str, b: str) -> None:
    assert compare_answers(a, b) is False
    assert not equal_answers(a, b)


def test_the_published_tolerance_is_coarse() -> None:
    assert equal_answers("0.0004", "0.0012", abs_tol=1e-3)
    assert not equal_answers("0.0004", "0.0015", abs_tol=1e-3)


@pytest.mark.parametrize("missing", [None, "", "  "])
def test_a_missing_answer_is_neither_equal_nor_different(missing: str | None) -> None:
    assert compare_answers(missing, "7") is None
    assert compare_answers(missing, missing) is None
    assert not equal_answers(missing, missing)


@pytest.mark.parametrize(
    "bomb",
    [
        "9**9**9",
        "9^{9^{9^9}}",
        "2^{123456789}x",
        "99999!!",
        "1000000!",
        "(" * 200 + "1" + ")" * 200,
        "{" * 300 + "x" + "}" * 300,
        "x+" * 5000 + "1",
        r"\frac{" * 80 + "1",
        "((((((((((((((((((((((1))))))))))))))))))))))+x",
    ],
)
def test_bombs_are_not_decided_and_do_no_harm(bomb: str) -> None:
    assert compare_answers(bomb, "x+3", seconds=0.5) is not True
    assert compare_answers("x+1", "1+x") is True  # the comparing process is there again


def test_answers_can_be_compared_in_threads() -> None:
    found: list[bool | None] = []
    threads = [threading.Thread(target=lambda: found.append(compare_answers("a+b", "b+a"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_survived(a: str, b: str) -> None:
    clean_answer(a)
    extract_answer(a + "\\boxed{" + b)
    answer_number(a + "#### " + b)
    assert compare_answers(a, a, symbolic=False) is (True if a.strip() else None)
    assert compare_answers(a, b, symbolic=False) == compare_answers(b, a, symbolic=False)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("½", "0.5", True),
        ("2½", "5/2", True),
        ("-⅓", "-1/3", True),
        ("½", "0.25", False),
        ("2½", "10.5", False),
        ("10²", "100", True),
        ("10²", "102", False),
        ("2⁻²", "0.25", True),
        ("−5", "-5", True),
        ("1\u202f234\u00a0567", "1,234,567", True),
        ("１２", "12", True),
        ("3⁄4", "0.75", True),
    ],
)
def test_numbers_in_characters_of_their_own_are_numbers(a: str, b: str, same: bool) -> None:
    assert compare_answers(a, b, symbolic=False) is same
    assert compare_answers(b, a, symbolic=False) is same
