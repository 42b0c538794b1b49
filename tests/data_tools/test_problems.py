"""Problems are checked by a parser of their text that shares nothing with the code that made them."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from data_tools.answers import final_answer, same_answer
from data_tools.cli import main
from data_tools.problems import Flaw, Problem, make_problems
from data_tools.records import DataToolsError, read_records
from data_tools.wordings import DISTRACTORS, EVENTS, OPENING, PLANTED_FORMS, QUESTIONS, STEPS

EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


@pytest.fixture(scope="module")
def honest() -> list[Problem]:
    return make_problems(2000, seed=7)


@pytest.fixture(scope="module")
def flawed() -> list[Problem]:
    return make_problems(4000, seed=7, flaw=Flaw(0.6))


def is_true(left: str, operation: str, right: str, value: str) -> bool:
    a, b, c = int(left), int(right), int(value)
    return {"+": a + b == c, "-": a - b == c, "*": a * b == c, "/": b != 0 and b * c == a}[operation]


def check_written_solution(problem: Problem) -> None:
    """Every equation is true, each uses an earlier value or only numbers of the story, and the last is the answer."""
    *lines, last = problem.solution.split("\n")
    story = set(re.findall(r"\d+", problem.prompt))
    words = {"doubles": "2", "triples": "3", "quadruples": "4", "half": "2", "third": "3", "quarter": "4"}
    words |= {"fifth": "5", "sixth": "6", "seventh": "7", "eighth": "8", "ninth": "9"}
    story |= {number for word, number in words.items() if re.search(rf"\b{word}\b", problem.prompt)}
    unused: list[str] = []
    for number, line in enumerate(lines, start=1):
        assert line.startswith(f"Step {number}: ")
        (equation,) = EQUATION.findall(line)
        assert is_true(*equation), line
        left, _, right, value = equation
        for operand in (left, right):
            if operand in unused:
                unused.remove(operand)
            else:
                assert operand in story, (operand, problem)
        unused.append(value)
    assert unused == [EQUATION.findall(lines[-1])[0][3]]  # every intermediate result went into a later step
    assert last == f"The answer is {unused[0]}."


PARTS = {"half": 2, "third": 3, "quarter": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9}
FACTORS = {"doubles": 2, "triples": 3, "quadruples": 4}


def understood(prompt: str) -> int:
    """The answer as a reader of the story finds it, from keywords of each sentence."""
    opening, *middle, question = re.split(r"(?<=\.) ", prompt)
    asked = re.search(r"many (?P<things>\w+) does (?P<owner>\w+)", question)
    assert asked is not None
    numbers = [int(number) for number in re.findall(r"\d+", opening)]
    total = numbers[0] if len(numbers) == 1 else numbers[0] * numbers[1]
    for sentence in middle:
        if asked["things"] in sentence:  # what a distractor counts is something else
            total = after(total, sentence, asked["owner"])
    return total


def after(total: int, sentence: str, owner: str) -> int:
    """The total after one event."""
    first, *more = [int(number) for number in re.findall(r"\d+", sentence)] or [0]
    for words, change in ((FACTORS, lambda n: total * n), (PARTS, lambda n: total // n)):
        for word in set(words) & set(re.findall(r"\w+", sentence)):
            return change(words[word])
    if more:
        return total + first * more[0]
    if re.search(r"times as|new ones", sentence):
        return total * first
    if "equal" in sentence:
        return total // first
    if re.search(r"sells|loses|uses up|thrown away|go missing|broken", sentence):
        return total - first
    if re.search(rf"{owner} gives|{owner} sends|from {owner}", sentence):
        return total - first
    return total + first


def test_every_solution_is_a_chain_of_true_equations(honest: list[Problem], flawed: list[Problem]) -> None:
    for problem in (*honest, *flawed):
        check_written_solution(problem)


def test_answers_agree_with_a_reader_of_the_story(honest: list[Problem], flawed: list[Problem]) -> None:
    for problem in (*honest, *flawed):
        assert understood(problem.prompt) == int(problem.answer), problem


def test_an_honest_solution_gives_the_answer(honest: list[Problem]) -> None:
    for problem in honest:
        assert final_answer(problem.solution) == problem.answer
        assert problem.planted == ()


def test_steps_are_the_numbered_lines(honest: list[Problem]) -> None:
    for problem in honest:
        lines = problem.solution.split("\n")[:-1]
        assert [problem.solution[start:end] for start, end in problem.steps] == lines
        assert [EQUATION.search(line).group() for line in lines] == list(problem.equations)  # type: ignore[union-attr]


def test_two_to_four_equations_and_some_distractors(honest: list[Problem]) -> None:
    sizes = Counter(len(problem.equations) for problem in honest)
    assert set(sizes) == {2, 3, 4}
    assert min(sizes.values()) > 0.25 * len(honest)
    assert 0.2 < sum(problem.distractor for problem in honest) / len(honest) < 0.3


def test_prompts_and_ids_are_unique(honest: list[Problem]) -> None:
    assert len({problem.prompt for problem in honest}) == len({problem.id for problem in honest}) == len(honest)


def test_the_seed_decides_and_a_longer_list_begins_with_the_shorter() -> None:
    assert make_problems(20, seed=3) == make_problems(50, seed=3)[:20]
    assert make_problems(20, seed=3) != make_problems(20, seed=4)


def test_problems_of_this_release_stay_the_same() -> None:
    (problem,) = make_problems(1, seed=0)
    assert problem.record() == RECORD


def test_excluded_prompts_do_not_occur() -> None:
    first = make_problems(30, seed=5)
    second = make_problems(30, seed=5, exclude=[problem.prompt for problem in first])
    assert not {problem.prompt for problem in first} & {problem.prompt for problem in second}


def test_every_form_occurs_and_has_three_wordings(honest: list[Problem]) -> None:
    forms = {form for problem in honest for form in problem.forms}
    assert forms == {f"{kind}:{form}" for kind, table in EVENTS.items() for form in table}
    for table in EVENTS.values():
        assert len(table) == 3
        assert all(len(set(wordings)) >= 3 for wordings in table.values())
    assert all(len(set(wordings)) >= 3 for wordings in (OPENING, DISTRACTORS, QUESTIONS, *STEPS.values()))


def test_flaws_fall_on_the_planted_forms(flawed: list[Problem]) -> None:
    """Problems with one event of a kind: the share of wrong operations is the one that was asked for, by form."""
    seen: Counter[bool] = Counter()
    wrong: Counter[bool] = Counter()
    for problem in flawed:
        events = [form.split(":") for form in problem.forms]
        corruptible = [(kind, form) for kind, form in events if kind in PLANTED_FORMS]
        if len(corruptible) == 1:
            ((kind, form),) = corruptible
            seen[PLANTED_FORMS[kind] == form] += 1
            wrong[PLANTED_FORMS[kind] == form] += bool(problem.planted)
        elif not corruptible:
            assert problem.planted == ()
    assert 0.5 < wrong[True] / seen[True] < 0.7
    assert 0.02 < wrong[False] / seen[False] < 0.09


def test_a_flawed_solution_usually_misses_the_answer(flawed: list[Problem]) -> None:
    planted = [problem for problem in flawed if problem.planted]
    missed = [problem for problem in planted if not same_answer(final_answer(problem.solution), problem.answer)]
    assert len(missed) > 0.97 * len(planted)
    untouched = [problem for problem in flawed if not problem.planted]
    assert all(final_answer(problem.solution) == problem.answer for problem in untouched)


def test_a_flaw_of_one_is_always_written() -> None:
    for problem in make_problems(300, seed=1, flaw=Flaw(1.0, 1.0)):
        assert bool(problem.planted) == any(form.split(":")[0] in PLANTED_FORMS for form in problem.forms)


@pytest.mark.parametrize("values", [(-0.1, 0.0), (1.1, 0.0), (0.5, 2.0), (float("nan"), 0.0)])
def test_flaws_outside_their_range_are_refused(values: tuple[float, float]) -> None:
    with pytest.raises(DataToolsError, match="probability"):
        Flaw(*values)


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(DataToolsError, match="-1"):
        make_problems(-1, seed=0)


def test_command_writes_what_the_function_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    assert main(["problems", str(first), "--count", "12", "--seed", "3"]) == 0
    assert list(read_records(first)) == [json.loads(json.dumps(p.record())) for p in make_problems(12, seed=3)]
    capsys.readouterr()
    command = [
        "problems",
        str(second),
        "--count",
        "12",
        "--seed",
        "3",
        "--exclude",
        str(first),
        "--flaw",
        "1",
        "--json",
    ]
    assert main(command) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["count"] == summary["excluded_prompts"] == 12
    assert summary["with_planted_flaw"] > 0
    assert not {row["prompt"] for row in read_records(first)} & {row["prompt"] for row in read_records(second)}


def test_a_file_of_another_run_is_kept_unless_overwriting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("mine\n")
    assert main(["problems", str(out), "--count", "3"]) == 2
    assert "out.jsonl: exists and was not made by this command. --overwrite replaces it." in capsys.readouterr().err
    assert out.read_text() == "mine\n"
    assert main(["problems", str(out), "--count", "3", "--dry-run"]) == 0
    assert main(["problems", str(out), "--count", "3", "--overwrite"]) == 0
    written = out.read_bytes()
    assert main(["problems", str(out), "--count", "3"]) == 0
    assert out.read_bytes() == written
    assert main(["problems", str(out), "--count", "4"]) == 2
    out.write_bytes(written[:-1])
    assert main(["problems", str(out), "--count", "3"]) == 2
    assert out.read_bytes() == written[:-1]


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    assert main(["problems", str(tmp_path / "out.jsonl"), "--count", "3", "--dry-run"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_refused_input_has_exit_code_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out.jsonl")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"question": "?"}\n')
    for arguments in (
        ["--count", "-1"],
        ["--flaw", "2"],
        ["--exclude", str(bad)],
        ["--exclude", out],
        ["--cuont", "1"],
    ):
        assert main(["problems", out, *arguments]) == 2
        assert "Traceback" not in capsys.readouterr().err
    assert main(["problems", out, "--exclude", str(bad)]) == 2
    assert "bad.jsonl:1: column 'prompt' is missing" in capsys.readouterr().err
    assert not Path(out).exists()


RECORD = {
    "id": "tiny-math-1f51ec04421a",
    "prompt": "At first Leo puts shells in 5 rows of 6. For 5 days Leo makes 5 shells a day. The whole story "
    "takes 7 days. How many shells does Leo have now?",
    "solution": "Step 1: That is 5 * 6 = 30 shells.\n"
    "Step 2: Together these make 5 * 5 = 25 shells.\n"
    "Step 3: Leo then has 30 + 25 = 55 shells.\n"
    "The answer is 55.",
    "answer": "55",
    "steps": [[0, 34], [35, 81], [82, 123]],
    "equations": ["5 * 6 = 30", "5 * 5 = 25", "30 + 25 = 55"],
    "forms": ["stock:rows", "packs:days"],
    "distractor": True,
    "planted": [],
}
