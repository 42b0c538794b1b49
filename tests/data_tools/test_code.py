from __future__ import annotations

import ast
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_tools.inject import CODE_KINDS, CodeInjector, SolutionItem, row_random
from data_tools.inject.code import code_span, mutations
from data_tools.inject.edits import edit
from data_tools.sandbox import Outcome, Sandbox
from data_tools.steps import Step, Steps

SOURCE = '''def count(xs, limit):
    """Wie öfter?"""
    total = 0
    for i in range(len(xs)):
        if xs[i] < limit:
            total += xs[i] * 2
    return total - 1
'''
TESTS = ["assert count([1, 2, 3], 3) == 5", "assert count([], 1) == -1"]


def item(text: str) -> SolutionItem:
    return SolutionItem("x", "p", Steps(text, (Step(0, 0, len(text)),)))


def test_every_mutation_is_a_program_that_differs_in_one_place() -> None:
    found = mutations(SOURCE)
    assert {mutation.kind for mutation in found} == set(CODE_KINDS)
    for mutation in found:
        start, end, new = mutation.replacement
        assert SOURCE[start:end] == mutation.old != new
        ast.parse(edit(SOURCE, [mutation.replacement]).text)


@pytest.mark.parametrize("source", ["", "x = = 1", "def f(:", "(" * 5000, "\x00", "x" * 30_000])
def test_what_is_no_program_has_no_mutations(source: str) -> None:
    assert mutations(source) == []


@given(st.text(alphabet="xyi <>=+-*/()0123\n:é", max_size=60))
def test_any_text_is_survived(source: str) -> None:
    for mutation in mutations(source):
        assert edit(source, [mutation.replacement]).text != source


def test_injected_programs_fail_a_test() -> None:
    found = CodeInjector(TESTS, pairs=3).inject(item(SOURCE), row_random(0, "x", "inject"))
    assert len(found) == 3
    for injection in found:
        assert Sandbox().run(injection.edited_step, TESTS) is Outcome.FAILED
        assert injection.verified == "tests"


def test_a_program_that_fails_its_own_tests_gets_no_error() -> None:
    assert CodeInjector(["assert count([], 0) == 9"]).inject(item(SOURCE), row_random(0, "x", "inject")) == []


def test_changes_that_no_test_notices_are_no_errors() -> None:
    assert CodeInjector(["assert True"]).inject(item(SOURCE), row_random(0, "x", "inject")) == []


def test_the_program_is_taken_out_of_its_fence() -> None:
    text = f"See:\n```python\n{SOURCE}```\nDone."
    begin, end = code_span(text)
    assert text[begin:end] == SOURCE
    (injection,) = CodeInjector(TESTS).inject(item(text), row_random(0, "x", "inject"))
    assert injection.edited_step.startswith("See:\n```python\ndef count")
    assert injection.edited_step.endswith("```\nDone.")


@pytest.mark.parametrize(
    ("program", "tests", "outcome"),
    [
        ("x = 1", ["assert x == 1"], Outcome.PASSED),
        ("x = 1", ["assert x == 2"], Outcome.FAILED),
        ("x = 1", ["assert y == 2"], Outcome.CRASHED),
        ("x = ", [], Outcome.BROKEN),
        ("1 / 0", [], Outcome.BROKEN),
        ("import math, re, collections, itertools", ["assert math.sqrt(4) == 2"], Outcome.PASSED),
        ("import sys; sys.exit(0)", ["assert False"], Outcome.BROKEN),
        ("import os; os._exit(0)", ["assert False"], Outcome.STOPPED),
        ("print('passed')", ["assert False"], Outcome.FAILED),
        ("x = [0] * 10**9", [], Outcome.BROKEN),
        ("while True: pass", [], Outcome.STOPPED),
        ("def f(): return f()", ["f()"], Outcome.CRASHED),
        ("x = 1", ["open('/etc/passwd')"], Outcome.CRASHED),
        ("x = 1", ["open('made-by-test', 'w')"], Outcome.CRASHED),
        ("import os", ["os.system('true')"], Outcome.CRASHED),
        ("import os", ["os.kill(os.getppid(), 0)"], Outcome.CRASHED),
        ("import os", ["os.listdir('/')"], Outcome.CRASHED),
        ("x = 1", ["import socket; socket.socket()"], Outcome.CRASHED),
        ("x = 1", ["import subprocess; subprocess.run(['true'])"], Outcome.CRASHED),
        ("x = 1", ["import ctypes; ctypes.CDLL(None)"], Outcome.CRASHED),
    ],
)
def test_the_sandbox_tells_what_became_of_a_program(program: str, tests: list[str], outcome: Outcome) -> None:
    assert Sandbox(seconds=1).run(program, tests) is outcome


def test_chance_in_a_program_is_the_same_every_time() -> None:
    program = "import random\ndef draw():\n    return [random.random() for _ in range(3)]\n"
    random.seed(0)
    first = [random.random() for _ in range(3)]
    assert [Sandbox().run(program, [f"assert draw() == {first}"]) for _ in range(3)] == [Outcome.PASSED] * 3
