from __future__ import annotations

import ast
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_tools.equations import (
    Equation,
    NumberStyle,
    Verdict,
    evaluate,
    find_equations,
    format_like,
    judge,
    judged,
    left_to_right,
    read_equations,
    tokenize,
)
from data_tools.equations.parse import read_tokens
from data_tools.equations.plain import plain_equations
from tests.data_tools.solutions import PROBLEMS


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("He buys 5*3 = 15 apples", "5*3", "15"),
        ("for 3 boxes of 5 + 4 = 9", "5 + 4", "9"),
        ("costs $2.20-.99 = $1.21 now", "$2.20-.99", "$1.21"),
        ("24 trees * $300/tree = $7200", "24 trees * $300", "$7200"),
        ("25 loaves of bread * $4/loaf = $100", "25 loaves of bread * $4", "$100"),
        ("(5 + 3) * 2 = 16", "(5 + 3) * 2", "16"),
        ("2(3 + 4) = 14", "2(3 + 4)", "14"),
        ("40(.50)=20", "40(.50)", "20"),
        ("1/2 of 20 = 10", "1/2 of 20", "10"),
        ("20% of 50 = 10", "20% of 50", "10"),
        ("100% / 25% = 4 times", "100% / 25%", "4"),
        ("1 1/2 * 4 = 6", "1 1/2 * 4", "6"),
        ("0.2 x 50 = 10", "0.2 x 50", "10"),
        ("12 plus 13 equals 25", "12 plus 13", "25"),
        ("100 divided by 4 is equal to 25", "100 divided by 4", "25"),
        ("-5 + 3 = -2", "-5 + 3", "-2"),
        ("- 5 + 3 = 8", "5 + 3", "8"),
        ("3 * -2 = -6", "3 * -2", "-6"),
        ("75 \u2013 50 = 25", "75 \u2013 50", "25"),
        (r"\frac{1}{2} \times 10 = 5", r"\frac{1}{2} \times 10", "5"),
        (r"$3\cdot 4=12$", r"$3\cdot 4", "12"),
        (r"\left(2+3\right)\div 5 = 1", r"\left(2+3\right)\div 5", "1"),
        ("1,000 + 5 = 1,005", "1,000 + 5", "1,005"),
        ("2^3 * 2 = 16", "2^3 * 2", "16"),
        ("15 = 5*3", "15", "5*3"),
        ("x = 5*3 = 15", "5*3", "15"),
    ],
)
def test_reads_true_equations_of_many_notations(text: str, left: str, right: str) -> None:
    (equation,) = find_equations(text)
    assert [text[side.start : side.end] for side in equation.sides] == [left, right]
    assert judge(equation) is Verdict.TRUE
    assert equation.site is not None


@pytest.mark.parametrize(
    "text",
    [
        "2x + 3 = 7",
        "x + 5 * 3 = 20",
        "3 * y = 12",
        "10:30 + 5 = 35",
        "1.2.3 + 1 = 2",
        "1,5 * 2 = 3",
        "2 500 + 1 = 2501",
        "14, 400 / 80 = 180",
        "6 / 2(1 + 2) = 9",
        "25 / 1/3 = 75",
        "the 3rd + 1 = 4",
        "5 != 3 + 3",
        "3 + 3 >= 5",
        "1 hour = 60 minutes",
        "8 batches = 5 * 8",
        "1 and 1/4 = 1.25",
        "\u221a(144) = 12",
        "3 + 4 = 7k",
        "12 + 4 = 15 x",
        "3 +\n4 = 7",
        "5",
        "",
    ],
)
def test_leaves_alone_what_is_not_certain(text: str) -> None:
    assert all(verdict is not Verdict.FALSE for _, verdict in judged(text))
    assert not read_equations(text).sites


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("5 * 3 = 16", Verdict.FALSE),
        ("5 apples + 3 apples = 9 apples", Verdict.FALSE),
        ("(2 + 3) = (5 + 1) = 6", Verdict.FALSE),
        ("10 / 3 = 3.33", Verdict.TRUE),
        ("10 / 3 = 3.34", Verdict.UNKNOWN),
        ("10 / 3 = 3", Verdict.UNKNOWN),
        ("10 / 3 = 4.33", Verdict.FALSE),
        ("10 / 50 = 20%", Verdict.TRUE),
        ("20 + 30 = 50%", Verdict.TRUE),
        ("3 + 4 = 7 + 1 = 8", Verdict.UNKNOWN),
        ("60 + 30 = 1.5 hours", Verdict.UNKNOWN),
        ("1 hour + 30 minutes = 90 minutes", Verdict.UNKNOWN),
        ("3 / 0 = 1", Verdict.UNKNOWN),
        ("9**9**9 = 3", Verdict.UNKNOWN),
        ("2^999999 = 3", Verdict.UNKNOWN),
    ],
)
def test_judges_an_equation(text: str, verdict: Verdict) -> None:
    (equation,) = find_equations(text)
    assert judge(equation) is verdict


def expressions() -> st.SearchStrategy[str]:
    numbers = st.integers(0, 999).map(str) | st.decimals(0, 99, places=2).map(str)
    return st.recursive(
        numbers,
        lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        max_leaves=6,
    )


def exact(node: ast.expr, source: str) -> Fraction:
    if isinstance(node, ast.BinOp):
        left, right = exact(node.left, source), exact(node.right, source)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
        return left / right
    return Fraction(ast.get_source_segment(source, node) or "")


DENIED = (
    "Not 5 * 3 = {} but more.",
    "That isn't 5 * 3 = {}.",
    "It is not $5 * 3 = ${}.",
    "Add, instead of 5 * 3 = {}, two.",
    "One might think 5 * 3 = {} here.",
    'Al would say that "5 * 3 = {}".',
    "He thought it is 5 * 3 = {}.",
    "She wrongly computed 5 * 3 = {}.",
    "5 * 3 = {} is wrong.",
)
STOOD_BY = ("He never got to read 5 * 3 = {} books.", "That must not exceed 5 * 3 = {} pounds.", "5 * 3 = {} is right.")


@pytest.mark.parametrize("text", DENIED)
def test_what_a_text_does_not_stand_by_is_not_judged(text: str) -> None:
    for value in (15, 16):
        assert [verdict for _, verdict in judged(text.format(value))] == [Verdict.UNKNOWN]


@pytest.mark.parametrize("text", STOOD_BY)
def test_a_word_further_off_denies_nothing(text: str) -> None:
    assert [verdict for value in (15, 16) for _, verdict in judged(text.format(value))] == [Verdict.TRUE, Verdict.FALSE]


@given(expressions())
def test_values_agree_with_another_parser(text: str) -> None:
    source = text
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError:  # "007" is no number of Python's
        return
    try:
        expected = exact(tree, source)
    except ZeroDivisionError:
        assert evaluate(tokenize(text)) is None
        return
    assert evaluate(tokenize(text)) == expected


@given(expressions(), st.integers(-5, 5))
def test_a_true_equation_is_true_and_a_shifted_one_is_false(text: str, shift: int) -> None:
    value = evaluate(tokenize(text))
    if value is None or Fraction(value).denominator != 1 or not any(sign in text for sign in "+-*/"):
        return
    found = judged(f"So {text} = {int(value) + shift}.")
    if found:  # a bracket that opens the sentence may be left alone
        assert found[0][1] is (Verdict.TRUE if shift == 0 else Verdict.FALSE)


@given(st.text(max_size=200))
def test_any_text_is_survived(text: str) -> None:
    for whole in (text, f"so 3 + 4 = {text}", f"{text} = 7", f"3 {text} 4 = 7"):
        reading = read_equations(whole)
        for equation in reading.equations:
            judge(equation)
            assert 0 <= equation.start < equation.end <= len(whole)


@pytest.mark.parametrize(
    "piece", ["1+", "(", ")", "1 = ", "a ", "1,", "$", "= ", "((1)", "\\frac{1}{", "9", "x ", "1.", "-"]
)
def test_reading_is_linear_on_hostile_text(piece: str) -> None:
    """Twice the text takes no more than about twice the steps: counted in tokens, not in seconds."""
    text = "so " + piece * 20_000
    assert len(tokenize(text)) <= 2 * len(text)
    read_equations(text)


def test_the_short_way_reads_like_the_grammar() -> None:
    taken = 0
    for problem in PROBLEMS:
        for line in problem.solution.splitlines():
            quick = plain_equations(line, 0, len(line))
            if quick is None:
                continue
            taken += 1
            slow = read_tokens(line).equations
            assert [_shape(equation) for equation in quick] == [_shape(equation) for equation in slow]
    assert taken >= 5


@settings(max_examples=1000)
@given(
    st.sampled_from(["He has ", "so that makes, ", "", "it is 5 and ", "In 3 boxes of ", "- ", "x * ", "1 and "]),
    st.integers(0, 999),
    st.sampled_from(["+", " - ", "*", " / "]),
    st.integers(1, 99),
    st.sampled_from([" apples", ".", "", " apples in all.", " x", " + 3", "%", " for 3 days", "\nmore", " = 7"]),
)
def test_the_short_way_never_reads_what_the_grammar_does_not(
    before: str, a: int, sign: str, b: int, after: str
) -> None:
    for result in (a + b, a - b, a * b):
        text = f"{before}{a}{sign}{b} = {result}{after}"
        quick = plain_equations(text, 0, len(text))
        if quick is not None:
            slow = read_tokens(text)
            assert [_shape(equation) for equation in quick] == [_shape(equation) for equation in slow.equations]
            assert not slow.unread


def _shape(equation: object) -> object:
    assert isinstance(equation, Equation)
    return [(side.tokens, side.start, side.end, side.value) for side in equation.sides], equation.site is None


@pytest.mark.parametrize(
    ("value", "old", "printed"),
    [
        (108, "96", "108"),
        (Fraction(450), "270.00", "450.00"),
        (Fraction(9, 2), "4.25", "4.5"),
        (Fraction(1, 3), "2", "0.33"),
        (Fraction(2, 3), "0.5", "0.67"),
        (Fraction(1, 8), "2", "0.13"),
        (13, "12.5", "13"),
        (1200, "1,150", "1,200"),
        (950, "1,150", "950"),
        (-66, "66", "-66"),
        (Fraction(3, 4), ".5", ".75"),
    ],
)
def test_a_new_number_looks_like_the_old_one(value: Fraction | int, old: str, printed: str) -> None:
    assert format_like(value, old) == printed


def test_long_numbers_follow_the_rest_of_the_text() -> None:
    assert format_like(1200, "950", NumberStyle(("it costs 1,300",))) == "1,200"
    assert format_like(1200, "950", NumberStyle(("it costs 1300",))) == "1200"
    assert format_like(1200, "950", NumberStyle(("1,300 or 1300",))) == "1200"
    assert format_like(1200, "9500", NumberStyle(("it costs 1,300",))) == "1200"


def test_left_to_right_ignores_precedence() -> None:
    assert left_to_right(tokenize("5 + 3 * 4 - 2")) == 30
    assert left_to_right(tokenize("(5 + 3) * 4")) is None
