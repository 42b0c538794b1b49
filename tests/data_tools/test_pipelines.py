"""Step-DPO, SCDPO and RISE: what their rows promise, and what becomes of problems that give none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from data_tools.command import RunInfo
from data_tools.errors import DataToolsError, RecordError
from data_tools.generators import Recorded
from data_tools.inject import ModelInjector, SolutionItem, row_random
from data_tools.pipelines.localise import ByEquations, ByLabels, ByRollouts, InTurn
from data_tools.pipelines.problem import is_right, read_problem
from data_tools.pipelines.rise import RISE, _Questions
from data_tools.pipelines.samples import Sampling, collect
from data_tools.pipelines.scdpo import SCDPO, Heat
from data_tools.pipelines.step_dpo import StepDPO, StepPair, next_step, tells_apart
from data_tools.pipelines.windows import Pipeline, through
from data_tools.records import write_records
from data_tools.run import Output, Reject, Row
from data_tools.steps import first_wrong_step, split_steps
from tests.data_tools.adder import Adder, problem

PROBLEMS = [problem(number) for number in range(30)]
DRAWN = Sampling(samples=4, temperature=1.0, prefill="Step 1:")


def run(pipeline: Pipeline, records: Sequence[dict[str, Any]] = PROBLEMS, window: int = 7) -> list[Output]:
    rows = [Row(dict(record), str(record.get("id", "?")), "in", line) for line, record in enumerate(records, start=1)]
    return list(through(pipeline, rows, RunInfo(0, Path("in")), window=window))


def rows_of(outputs: Sequence[Output], kind: str | None = None) -> list[dict[str, Any]]:
    rows = [output for output in outputs if isinstance(output, dict)]
    return [row for row in rows if kind is None or row["pair_kind"] == kind]


def step_dpo(model: Adder, **options: Any) -> StepDPO:
    localiser = InTurn([ByEquations(), ByRollouts(model, rollouts=6, temperature=0.5)])
    return StepDPO(model, localiser, DRAWN, Sampling(samples=6, temperature=0.5), **options)


# ---------------------------------------------------------------------------------------------------- Step-DPO


@pytest.mark.parametrize("slips", [True, False])
def test_step_pairs_join_to_a_wrong_and_a_right_solution(slips: bool) -> None:
    rows = rows_of(run(step_dpo(Adder(slips=slips), wrong_per_problem=2)))
    assert len(rows) > 20
    for row in rows:
        beginning, answer = row["initial_reason_steps"], row["answer"]
        assert is_right(beginning + row["full_chosen"], answer) is True
        assert is_right(beginning + row["full_rejected"], answer) is False
        assert row["full_chosen"].startswith(row["chosen"])
        assert row["full_rejected"].startswith(row["rejected"])
        assert row["chosen"].split() != row["rejected"].split()
        assert beginning.endswith(f"Step {row['solution_step']}:")
        assert first_wrong_step(split_steps(beginning + row["chosen"])).step is None
        assert row["complete"] is False
    assert {row["located_by"] for row in rows} == {"equations"} if slips else {"rollouts"}


def test_every_problem_gives_rows_or_a_reason() -> None:
    outputs = run(step_dpo(Adder(wrong=0.15)))
    named = {row["source_id"] for row in rows_of(outputs)} | {o.id for o in outputs if isinstance(o, Reject)}
    assert named == {record["id"] for record in PROBLEMS}
    assert len({row["id"] for row in rows_of(outputs)}) == len(rows_of(outputs))


def test_rows_do_not_depend_on_the_window() -> None:
    whole = run(step_dpo(Adder()), window=30)
    assert whole == run(step_dpo(Adder()), window=1) == run(step_dpo(Adder()), window=8)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Adder(wrong=0), "no_wrong_sample"),
        (Adder(failing="Add"), "http_500"),
        (Adder(wrong=9, slips=True), "not_rectified"),
    ],
)
def test_what_gives_no_pair_is_counted_under_its_reason(model: Adder, reason: str) -> None:
    outputs = run(step_dpo(model))
    assert {output.reason for output in outputs if isinstance(output, Reject)} == {reason}
    assert rows_of(outputs) == []


def test_wrong_solutions_may_be_given() -> None:
    text = "Step 1: 10 + 20 = 30.\nStep 2: 30 + 30 = 70.\nThe answer is 70."
    record = {"id": "x", "prompt": "Add 10, 20, 30.", "answer": "60", "wrong": text}
    rows = rows_of(run(step_dpo(Adder(wrong=0), given="wrong"), [record]))
    assert [(row["rejected"], row["chosen"]) for row in rows] == [
        (" 30 + 30 = 70.\nThe answer is 70.", " 30 + 30 = 60.\nThe answer is 60.")
    ]


def test_labelled_chains_keep_the_steps_that_were_labelled(tmp_path: Path) -> None:
    steps = ["We add 10 and 20. That is 30.", "30 and 30 are 70. So it goes.", "The answer is 70."]
    text, spans = "\n".join(steps), [[0, 29], [30, 59], [60, 77]]
    assert [text[start:end] for start, end in spans] == steps
    record = {"id": "x", "prompt": "Add 10, 20, 30.", "answer": "60", "completion": text, "completion_steps": spans}
    right = "30 and 30 are 60. So it goes.\nThe answer is 60."
    write_records(tmp_path / "r.jsonl", [{"prompt": record["prompt"], "prefill": steps[0] + "\n", "texts": [right]}])

    def rows_with(**changes: Any) -> list[Output]:
        once = Sampling(samples=1, temperature=1.0)
        model = Recorded(tmp_path / "r.jsonl")
        pipeline = StepDPO(model, ByLabels(), once, once, splitter="line", given="completion")
        return run(pipeline, [record | {"first_error_step": 2} | changes])

    (row,) = rows_of(rows_with())
    assert (row["initial_reason_steps"], row["chosen"]) == (steps[0] + "\n", "30 and 30 are 60. So it goes.")
    assert (row["rejected"], row["full_rejected"]) == (steps[1], "\n".join(steps[1:]))
    for broken in ([[0, 999]], [[5, 3]], "steps", [[0, 9], [3, 12]]):
        (reject,) = rows_with(completion_steps=broken)
        assert isinstance(reject, Reject)
        assert reject.reason == "no_steps"


@pytest.mark.parametrize("splitter", ["numbered", "auto", "line", "paragraph", "sentence"])
def test_the_next_step_joins_the_beginning(splitter: str) -> None:
    texts = {
        "paragraph": ("One.\n\n", "Two is\n2.\n\nThree.", "Two is\n2."),
        "line": ("One.\n", "Two. It is 2.\nThree.", "Two. It is 2."),
        "sentence": ("One. ", "Two. Three.", "Two."),
    }
    numbered = ("Step 1: one.\nStep 2:", " two.\nStep 3: three.", " two.")
    beginning, text, step = texts.get(splitter, numbered)
    assert next_step(beginning, text, 2, splitter) == step
    assert next_step(beginning, "", 2, splitter) is None


def test_a_continuation_that_counts_otherwise_is_passed_over() -> None:
    assert next_step("Step 1: one.\nStep 2:", " two.\nStep 7: three.", 2, "numbered") is None


def test_a_chosen_step_with_a_false_equation_is_left_out_if_asked() -> None:
    item = {"id": "x", "prompt": "P", "answer": "6", "wrong": "Step 1: 1 + 2 = 4.\nThe answer is 7."}
    luck = " 1 + 2 = 5, so 1 + 2 + 3 is 6.\nThe answer is 6."

    class Lucky(Adder):
        def text(self, request: object) -> str:
            return luck

    assert [r.reason for r in run(step_dpo(Lucky(), given="wrong"), [item]) if isinstance(r, Reject)] == ["no_new_step"]
    (row,) = rows_of(run(step_dpo(Lucky(), given="wrong", check=False), [item]))
    assert row["chosen"] == luck


@pytest.mark.parametrize(
    ("chosen", "rejected", "kept"),
    [
        (" 20 + 41 = 61.", " Then 20 + 41 = 61 shells.", False),
        (" 20 + 41 = 61.", " 20 - 41 = 7.", True),
        (" 20 + 41 = 61.", " 20 + 31 = 61.", True),
        (" 20 + 41 = 51.", " 20 - 41 = 7.", False),
        (" 1,000 + 1 = 1,001.", " 1000 + 1 = 1001.", False),
        (" It doubles.", " It halves.", True),
        (" 20 + 41 = 61.", " It is 61.", True),
    ],
)
def test_two_steps_with_the_same_result_are_no_pair_unless_one_is_false(chosen: str, rejected: str, kept: bool) -> None:
    assert tells_apart(StepPair("Step 1:", chosen, rejected, chosen, rejected)) is kept


def test_records_that_are_no_problems_are_rejected_in_their_place() -> None:
    outputs = run(step_dpo(Adder()), [PROBLEMS[0], {"id": "bad", "prompt": "P"}, {"id": "worse", "answer": "1"}])
    reasons = {o.id: (o.reason, o.line) for o in outputs if isinstance(o, Reject) and o.id in ("bad", "worse")}
    assert reasons == {"bad": ("no_answer", 2), "worse": ("missing_column", 3)}
    strict = RunInfo(0, Path("in"), strict=True)
    with pytest.raises(RecordError, match="in:1: column 'answer' is missing"):
        list(through(step_dpo(Adder()), [Row({"prompt": "P"}, "bad", "in", 1)], strict, window=1))


def test_an_instruction_is_asked_and_not_written() -> None:
    row = Row({"prompt": [{"role": "user", "content": "P"}], "answer": "1"}, "x", "in", 1)
    item = read_problem(row, instruction="Think.")
    assert item.asked == [{"role": "user", "content": "P\nThink."}]
    assert item.prompt == [{"role": "user", "content": "P"}]


def test_samples_without_an_answer_are_neither_right_nor_wrong_unless_asked() -> None:
    class Silent(Adder):
        def text(self, request: object) -> str:
            return " 1 + 1 = 2."

    item = read_problem(Row({"prompt": "P", "answer": "2"}, "x", "in", 1))
    (found,) = collect(Silent(), [item], DRAWN)
    assert (found.right, found.wrong, len(found.open)) == ([], [], 1)
    (found,) = collect(Silent(), [item], DRAWN, count_open_as_wrong=True)
    assert len(found.wrong) == 1


# ------------------------------------------------------------------------------------------------------- SCDPO


def test_scdpo_pairs_part_behind_right_steps_and_end_wrong() -> None:
    rows = run(SCDPO(Adder(), DRAWN, rounds=2))
    suffix, full = rows_of(rows, "suffix"), rows_of(rows, "full")
    assert len(suffix) > 20
    assert len(full) > 20
    for row in suffix + full:
        beginning = row["initial_reason_steps"]
        assert is_right(beginning + row["chosen"], row["answer"]) is True
        assert is_right(beginning + row["rejected"], row["answer"]) is False
        assert row["complete"] is True
    assert all(row["initial_reason_steps"].endswith(f"Step {row['solution_step']}:") for row in suffix)
    assert len({(row["source_id"], row["initial_reason_steps"], row["rejected"]) for row in suffix}) == len(suffix)
    assert min(row["solution_step"] for row in suffix) > 1, "keeping nothing would be another ordinary pair"


def test_scdpo_without_ordinary_pairs_also_cuts_at_the_beginning() -> None:
    rows = rows_of(run(SCDPO(Adder(), DRAWN, naive=0)))
    assert {row["pair_kind"] for row in rows} == {"suffix"}
    assert {row["solution_step"] for row in rows} == {1, 2, 3}


def test_scdpo_gets_hotter_with_each_step_behind_the_cut() -> None:
    model = Adder(wrong=0)
    run(SCDPO(model, DRAWN, naive=0, tries=1, rounds=1), PROBLEMS[:4])
    written = [request for request in model.asked if request.stop]
    assert written
    for request in written:
        behind = request.prefill.count("\nStep")
        assert request.stop == ("\nStep ",)
        assert request.temperature in [Heat().at(step) for step in range(behind + 1)]
    assert {request.temperature for request in written} == {1.1, 1.15, 1.2}


def test_scdpo_by_rule_writes_wrong_ends_without_the_model() -> None:
    model = Adder()
    rows = rows_of(run(SCDPO(model, DRAWN, by_rule=True, rounds=2)), "suffix")
    assert len(rows) > 10
    assert not [request for request in model.asked if request.stop]
    for row in rows:
        assert is_right(row["initial_reason_steps"] + row["chosen"], row["answer"]) is True
        assert is_right(row["initial_reason_steps"] + row["rejected"], row["answer"]) is False


def test_scdpo_gives_up_after_so_many_tries_and_samples() -> None:
    model = Adder(wrong=0)
    outputs = run(SCDPO(model, DRAWN, rounds=3, naive=0, negatives=1, tries=2), PROBLEMS[:1])
    assert [output.reason for output in outputs if isinstance(output, Reject)] == ["no_wrong_end"]
    assert sum(not request.stop for request in model.asked) == 3 * DRAWN.samples


def test_scdpo_takes_no_right_sample_that_apologises() -> None:
    class Sorry(Adder):
        def text(self, request: Any) -> str:
            return super().text(request).replace(".\nThe answer", ". I apologise.\nThe answer")

    outputs = run(SCDPO(Sorry(), DRAWN), PROBLEMS[:3])
    assert {output.reason for output in outputs if isinstance(output, Reject)} == {"no_usable_right_sample"}


def test_scdpo_needs_a_splitter_that_can_stop_a_model() -> None:
    with pytest.raises(DataToolsError, match="must be one of numbered, paragraph, line"):
        SCDPO(Adder(), DRAWN, splitter="sentence")


# -------------------------------------------------------------------------------------------------------- RISE


def test_rise_has_edited_steps_beside_ordinary_pairs() -> None:
    rows = run(RISE(Adder(), DRAWN, edits=2))
    edits, full = rows_of(rows, "edit"), rows_of(rows, "full")
    assert len(edits) > len(full) > 10
    whole = {row["source_id"]: row["chosen"] for row in full}
    for row in edits:
        assert whole[row["source_id"]].startswith(row["initial_reason_steps"] + row["chosen"])
        assert row["complete"] is False
        (old,), (new,) = row["chosen_steps"], row["rejected_steps"]
        assert (old, new) == ([0, len(row["chosen"])], [0, len(row["rejected"])])
    for row in full:
        assert is_right(row["chosen"], row["answer"]) is True
        assert is_right(row["rejected"], row["answer"]) is False
        assert row["complete"] is True


def test_rise_needs_a_right_and_a_wrong_sample() -> None:
    for model, reason in ((Adder(wrong=0), "no_wrong_sample"), (Adder(wrong=9), "no_right_sample")):
        outputs = run(RISE(model, DRAWN))
        assert {output.reason for output in outputs if isinstance(output, Reject)} == {reason}


def test_rise_by_the_model_asks_for_all_edits_at_once(tmp_path: Path) -> None:
    right = " 10 + 20 = 30 pens in the first box.\nStep 2: 30 + 30 = 60 pens in all.\nThe answer is 60."
    wrong = " 10 + 20 = 31.\nStep 2: 31 + 30 = 61.\nThe answer is 61."
    record = {"id": "x", "prompt": "Add 10, 20, 30.", "answer": "60"}
    item = SolutionItem("x", record["prompt"], split_steps("Step 1:" + right, "numbered"), "60")
    questions = _Questions()
    ModelInjector(questions, attempts=2).inject(item, row_random(0, "x", "edit"))
    lines = [{"prompt": record["prompt"], "prefill": "Step 1:", "texts": [right, wrong]}]
    for prompt in questions.prompts:
        asked, _, _ = prompt.rpartition("\n\nThe edited passage:")
        passage = prompt.split("```\n")[1].strip("\n")
        reply = passage.replace("= 30", "= 40").replace("= 60", "= 50").replace("is 60", "is 50")
        lines.append({"prompt": asked, "prefill": "The edited passage:\n```\n", "texts": [reply]})
    write_records(tmp_path / "r.jsonl", lines)
    two = Sampling(samples=2, temperature=1.0, prefill="Step 1:")
    outputs = run(RISE(Recorded(tmp_path / "r.jsonl"), two, by_model=True, edits=2), [record])
    assert {(row["chosen"], row["rejected"]) for row in rows_of(outputs, "edit")} == {
        (" 10 + 20 = 30 pens in the first box.", " 10 + 20 = 40 pens in the first box."),
        (
            " 30 + 30 = 60 pens in all.\nThe answer is 60.",
            " 30 + 30 = 50 pens in all.\nThe answer is 50.",
        ),
    }
