import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_tools.answers import final_answer, normal_number, same_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Step 1: 3 + 4 = 7.\nThe answer is 7.", "7"),
        ("the answer is: 7", "7"),
        ("The final answer is **1,250**.", "1250"),
        ("The answer is $1,250.50.", "1250.5"),
        ("The answer is $ 18 dollars", "18"),
        ("The answer is 18 pencils. That took 3 days.", "18"),
        ("The answer is -4.", "-4"),
        ("The answer is \u22124.", "-4"),
        ("The answer is $-4$", "-4"),
        ("The answer is -$4", "-4"),
        ("The answer is 007.", "7"),
        ("The answer is 12.00", "12"),
        ("The answer is .5", "0.5"),
        ("The answer is -0.0", "0"),
        ("The answer is 3/4.", "3/4"),
        ("The answer is 1 1/2.", "3/2"),
        ("The answer is 1.5/3", "1/2"),
        ("The answer is 60%.", "60"),
        ("The answer is 3 + 4 = 7.", "7"),
        ("The answer is 3 + 4 = $7. Indeed 1 + 1 = 2.", "7"),
        ("The answer is x = 7", "7"),
        ("#### 72", "72"),
        ("####72", "72"),
        ("so \\boxed{42}", "42"),
        ("The answer is \\boxed{42}.", "42"),
        ("The answer is $\\boxed{\\frac{3}{4}}$", "3/4"),
        ("\\boxed{\\dfrac{3}{4}}", "3/4"),
        ("The answer is\n42", "42"),
        ("The answer is 5. Wait. The answer is 6.", "6"),
        ("#### 5\nThe answer is 6.", "6"),
        ("The answer is 6.\n#### 5", "5"),
    ],
)
def test_finds_the_number_after_the_last_marker(text: str, answer: str) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "Step 1: 3 + 4 = 7.",
        "The answer is",
        "The answer is unclear: 7 or 8.",
        "The answer is 5. No! The answer is not known.",
        "The answer is 3 + 4.",
        "The answer is 7 = 3 + 4",
        "The answer is 2^10",
        "The answer is 1e5",
        "The answer is 10:30",
        "The answer is 1,23",
        "The answer is 1.2.3",
        "The answer is 3/0",
        "The answer is " + "9" * 1000,
    ],
)
def test_gives_none_where_there_is_no_single_number(text: str) -> None:
    assert final_answer(text) is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("7", "7.0"),
        ("1,000", "1000"),
        ("0.5", "1/2"),
        ("3/4", "6/8"),
        ("$5", "5"),
        ("-0", "0"),
        ("1 1/2", "1.5"),
        (" x", "x "),
    ],
)
def test_same_answers(a: str, b: str) -> None:
    assert same_answer(a, b)
    assert same_answer(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [("7", "8"), ("0.333", "1/3"), ("7", "-7"), ("7", "x"), ("", ""), ("1e3", "1000"), ("3/0", "1"), ("7", "7 8")],
)
def test_different_answers(a: str, b: str) -> None:
    assert not same_answer(a, b)
    assert not same_answer(b, a)


def test_no_answer_is_the_same_as_nothing() -> None:
    assert not same_answer(None, None)
    assert not same_answer(None, "7")


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_comparison_agrees_with_integers(a: int, b: int) -> None:
    assert same_answer(f"{a:,}", str(b)) == (a == b)
    assert final_answer(f"The answer is {a:,}.") == str(a)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**6), max_value=10**6))
def test_normal_form_is_stable(number: object) -> None:
    form = normal_number(str(number))
    assert form is not None
    assert normal_number(form) == form
    assert same_answer(form, str(number))


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    for whole in (text, "The answer is " + text, "\\boxed{" + text):
        answer = final_answer(whole)
        assert answer is None or normal_number(answer) == answer
        assert same_answer(whole, whole) == bool(whole.strip())


@pytest.mark.parametrize(
    "piece",
    [
        "The answer is ",
        "####",
        "\\boxed{",
        "the ",
        " ",
        "9",
        "1,",
        "1,000,",
        "(",
        "$",
        "=",
        "1=",
        "1 /",
        "-",
        "\\frac{1",
        ". ",
    ],
)
def test_time_stays_linear_on_hostile_text(piece: str) -> None:
    text = "The answer is " + piece * (1_000_000 // len(piece))
    begin = time.perf_counter()
    final_answer(text)
    same_answer(text, text + "1")
    assert time.perf_counter() - begin < 2.0
