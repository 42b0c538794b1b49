"""Columns in forms that could be taken for something else: read for what they mean, or rejected with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data_tools.cli import main
from data_tools.records import read_records, write_records

TASK = {"id": "a", "prompt": "Al has 12 nuts and finds 5. How many?", "solution": "He has 12 + 5 = 17 nuts.\n#### 17"}
USER = {"role": "user", "content": "Sure?"}
ANSWER = {"role": "assistant", "content": TASK["solution"]}
PARTS = {"role": "assistant", "content": [{"type": "text", "text": TASK["solution"]}]}


def run(folder: Path, command: str, *records: dict[str, Any], more: tuple[str, ...] = ()) -> tuple[int, Any, Any]:
    """Exit code, rows and rejects of a command."""
    write_records(folder / "in.jsonl", records)
    code = main([command, str(folder / "in.jsonl"), "--out", str(folder / "out.jsonl"), *more])
    rejects = folder / "out.jsonl.rejects.jsonl"
    rows = list(read_records(folder / "out.jsonl")) if (folder / "out.jsonl").exists() else []
    return code, rows, list(read_records(rejects)) if rejects.exists() else []


# ------------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize("answer", [17, 17.0, "17", "17 nuts", "$17", "\\boxed{17}", "#### 17", "34/2", "17.0"])
@pytest.mark.parametrize("mode", ["step", "full"])
def test_an_answer_is_the_same_in_any_dress(tmp_path: Path, answer: Any, mode: str) -> None:
    code, rows, rejects = run(tmp_path, "inject", {**TASK, "answer": answer}, more=("--mode", mode))
    assert (code, len(rows), rejects) == (0, 1, [])
    assert rows[0]["answer"] == str(answer)
    assert rows[0]["rejected_answer"] != "17"


@pytest.mark.parametrize("answer", [18, "18 nuts", "\\boxed{71}", "seventeen"])
def test_another_answer_is_a_wrong_one(tmp_path: Path, answer: Any) -> None:
    _, rows, (entry,) = run(tmp_path, "inject", {**TASK, "answer": answer})
    assert (rows, entry["reason"]) == ([], "wrong_answer")
    assert f"the solution's answer is not '{answer}'" in entry["detail"]


@pytest.mark.parametrize("answer", [True, ["17"], {"value": 17}])
@pytest.mark.parametrize("command", ["inject", "pair", "negatives"])
def test_what_is_no_answer_is_not_passed_over(tmp_path: Path, command: str, answer: Any) -> None:
    completions = [{**TASK, "id": str(at), "answer": answer, "completion": f"It is {at}.\n#### {at}"} for at in (17, 9)]
    _, rows, rejects = run(tmp_path, command, *completions)
    assert rows == []
    assert {entry["reason"] for entry in rejects} == {"bad_answer"}
    assert f"column 'answer' must be text or a number; got {type(answer).__name__}" in rejects[0]["detail"]


def test_a_gold_solution_of_another_answer_is_no_right_sample(tmp_path: Path) -> None:
    wrong = {**TASK, "id": "b", "answer": "18", "completion": "#### 3"}
    right = {**TASK, "id": "c", "prompt": "And 12 + 5?", "answer": "17", "completion": "#### 3"}
    _, rows, rejects = run(tmp_path, "pair", wrong, right)
    assert [row["source_id"] for row in rows] == ["c"]
    assert rows[0]["chosen"] == TASK["solution"]
    assert [(entry["id"], entry["reason"]) for entry in rejects] == [("b", "wrong_answer"), ("b", "no_right_sample")]
    assert "the solution's answer is not '18'" in rejects[0]["detail"]


# ------------------------------------------------------------------------------------------------ messages


@pytest.mark.parametrize("message", [ANSWER, PARTS, {"content": TASK["solution"]}])
def test_a_solution_may_be_one_message(tmp_path: Path, message: dict[str, Any]) -> None:
    _, rows, rejects = run(tmp_path, "inject", {**TASK, "solution": [message]}, more=("--mode", "full"))
    assert rejects == []
    assert rows[0]["chosen"] == TASK["solution"]


@pytest.mark.parametrize("messages", [[USER, ANSWER], [ANSWER, USER, ANSWER], [USER], [ANSWER, ANSWER]])
def test_several_messages_are_no_solution(tmp_path: Path, messages: list[dict[str, Any]]) -> None:
    roles = ", ".join(message["role"] for message in messages)
    for command, column in (("inject", "solution"), ("label", "chosen")):
        record = {name: value for name, value in TASK.items() if name != "solution"} | {column: messages}
        _, rows, (entry,) = run(tmp_path, command, record, more=("--overwrite",))
        assert (rows, entry["reason"]) == ([], "several_messages")
        assert f"column '{column}' must be one answer; it has messages of {roles}." in entry["detail"]


def test_several_messages_are_a_prompt(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Al has 12 nuts"}, {"role": "user", "content": "and finds 5. How many?"}]
    _, rows, rejects = run(tmp_path, "inject", {**TASK, "prompt": turns})
    assert rejects == []
    assert rows[0]["prompt"] == turns


# ------------------------------------------------------------------------------------------------ ids and labels


def test_an_id_is_text_or_a_number(tmp_path: Path) -> None:
    records = [{**TASK, "id": id} for id in (True, ["a"], 3, 4.0, "b", None)]
    _, rows, rejects = run(tmp_path, "inject", *records)
    named = [row["source_id"] for row in rows]
    assert named[:3] == ["3", "4.0", "b"]
    assert named[3].startswith("r-")
    assert [(entry["line"], entry["reason"]) for entry in rejects] == [(1, "bad_id"), (2, "bad_id")]
    assert "column 'id' must be text or a number; got bool" in rejects[0]["detail"]


@pytest.mark.parametrize(
    ("label", "read"), [("false", False), ("True", True), (0, False), (1.0, True), (True, True), (None, None)]
)
def test_a_label_in_words_is_no_label_lost(tmp_path: Path, label: Any, read: bool | None) -> None:
    record = {"instruction": "Add 2 and 3.", "output": "5", "kto_tag": label}
    _, (row,), _ = run(tmp_path, "convert", record)
    assert row.get("label") is read


@pytest.mark.parametrize("label", ["good", 2, ["true"]])
def test_what_is_no_label_is_said(tmp_path: Path, label: Any) -> None:
    record = {"instruction": "Add 2 and 3.", "output": "5", "kto_tag": label}
    _, rows, (entry,) = run(tmp_path, "convert", record)
    assert (rows, entry["reason"]) == ([], "bad_label")
    assert f"column 'kto_tag' must be true or false; got {label!r}" in entry["detail"]


def test_scores_may_be_text(tmp_path: Path) -> None:
    record = {"prompt": "Add 2 and 3.", "responses": ["5", "6", "?"], "rewards": ["0.9", 0.1, "N/A"]}
    _, (row,), _ = run(tmp_path, "convert", record)
    assert (row["chosen"], row["rejected"], row["score_chosen"]) == ("5", "6", 0.9)


@pytest.mark.parametrize(
    ("record", "reason", "says"),
    [
        ({"prompt": "a", "chosen": "b", "rejected": None}, "unknown_shape", "columns prompt, chosen, rejected (null)."),
        (
            {"prompt": "a", "chosen": [ANSWER], "rejected": [{"role": "assistant", "content": None}]},
            "no_text",
            "'rejected'",
        ),
        ({"prompt": "a", "chosen": 3, "rejected": "b"}, "no_text", "column 'chosen' must be text or messages"),
    ],
)
def test_a_side_without_text_is_no_side(tmp_path: Path, record: dict[str, Any], reason: str, says: str) -> None:
    _, rows, (entry,) = run(tmp_path, "convert", record)
    assert (rows, entry["reason"]) == ([], reason)
    assert says in entry["detail"]
