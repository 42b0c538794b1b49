"""Published shapes as rows. Every record here has the columns that data sets of that shape have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data_tools.cli import main
from data_tools.errors import DataToolsError
from data_tools.records import read_records, write_records
from data_tools.shapes import SHAPES, ShapeOptions, convert_record, detect

USER = {"role": "user", "content": "What is 2 + 3?"}
GOOD, BAD = {"role": "assistant", "content": "5"}, {"role": "assistant", "content": "6"}

SHAREGPT = {
    "id": "s",
    "conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "What is 2 + 3?"}],
    "chosen": {"from": "gpt", "value": "5"},
    "rejected": {"from": "gpt", "value": "6"},
}
ULTRAFEEDBACK = {
    "id": "u",
    "source": "evol",
    "instruction": "What is 2 + 3?",
    "completions": [
        {"response": "6", "overall_score": 2.0, "annotations": {"honesty": {"Rating": "2"}}},
        {"response": "5", "overall_score": 9.0, "annotations": {"honesty": {"Rating": "5"}, "help": {"Rating": "4"}}},
        {"response": "five", "overall_score": 9.0, "annotations": {"honesty": {"Rating": "N/A"}}},
        {"response": "4", "overall_score": 3.0, "annotations": {"honesty": {"Rating": "3"}}},
    ],
}
STEPWISE = {
    "id": "w",
    "prompt": "p",
    "completions": ["2 + 3 = 5.", "5 * 2 = 11.", "So 11."],
    "labels": [True, False, False],
}
HH = {
    "id": "h",
    "chosen": "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: 2 + 3?\n\nAssistant: 5",
    "rejected": "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: 2 + 3?\n\nAssistant: 6",
}


def rows_of(record: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    name = detect(record)
    assert name is not None
    return list(convert_record(record, name, id="x", where="f:1", options=ShapeOptions(**options)))


@pytest.mark.parametrize(
    ("record", "shape", "wanted"),
    [
        (
            SHAREGPT,
            "sharegpt",
            {"prompt": [{"role": "system", "content": "Be brief."}, USER], "chosen": [GOOD], "rejected": [BAD]},
        ),
        (
            {"conversations": [{"from": "human", "value": "What is 2 + 3?"}, {"from": "gpt", "value": "5"}]},
            "sharegpt",
            {"prompt": [USER], "completion": [GOOD]},
        ),
        (
            {"conversations": [USER, BAD], "kto_tag": False},
            "sharegpt",
            {"prompt": [USER], "completion": [BAD], "label": False},
        ),
        (
            {"instruction": "Add.", "input": "2, 3", "output": "5"},
            "alpaca",
            {"prompt": "Add.\n\n2, 3", "completion": "5"},
        ),
        (
            {"instruction": "Add.", "input": "", "output": ["5", "6"]},
            "alpaca",
            {"prompt": "Add.", "chosen": "5", "rejected": "6"},
        ),
        (
            {
                "instruction": "What is 2 + 3?",
                "system": "Be brief.",
                "history": [["Hi", "Hello"]],
                "chosen": "5",
                "rejected": "6",
            },
            "alpaca",
            {
                "prompt": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": "Hello"},
                    USER,
                ],
                "chosen": "5",
                "rejected": "6",
            },
        ),
        (
            {"question": "2 + 3?", "response_j": "5", "response_k": "6", "qid": 7},
            "response_jk",
            {"prompt": "2 + 3?", "chosen": "5", "rejected": "6", "qid": 7},
        ),
        (
            STEPWISE,
            "stepwise",
            {
                "prompt": "p",
                "completion": "2 + 3 = 5.\n5 * 2 = 11.\nSo 11.",
                "label": False,
                "completion_steps": [[0, 10], [11, 22], [23, 29]],
                "first_error_step": 2,
            },
        ),
        (
            HH,
            "hh",
            {
                "prompt": [
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": "Hello."},
                    {"role": "user", "content": "2 + 3?"},
                ],
                "chosen": [GOOD],
                "rejected": [BAD],
            },
        ),
        (
            ULTRAFEEDBACK,
            "ultrafeedback",
            {
                "prompt": "What is 2 + 3?",
                "chosen": "5",
                "rejected": "6",
                "score_chosen": 9.0,
                "score_rejected": 2.0,
                "source": "evol",
            },
        ),
        (
            {"prompt": "p", "responses": ["a", "b"], "rewards": [0.1, 0.9]},
            "group",
            {"prompt": "p", "chosen": "b", "rejected": "a", "score_chosen": 0.9, "score_rejected": 0.1},
        ),
        (
            {"prompt": "What is 2 + 3?", "chosen": [USER, GOOD], "rejected": [USER, BAD], "score_chosen": 9},
            "pair",
            {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD], "score_chosen": 9},
        ),
        ({"prompt": "p", "chosen": "a", "rejected": "b"}, "pair", {"prompt": "p", "chosen": "a", "rejected": "b"}),
    ],
)
def test_a_record_is_told_and_converted(record: dict[str, Any], shape: str, wanted: dict[str, Any]) -> None:
    assert detect(record) == shape
    assert rows_of(record) == [{"id": "x", **wanted, "converted_from": shape}]


def test_scored_responses_give_the_pairs_that_are_asked_for() -> None:
    every = rows_of(ULTRAFEEDBACK, pairs="all")
    assert [(row["chosen"], row["rejected"]) for row in every] == [
        ("5", "4"),
        ("5", "6"),
        ("five", "4"),
        ("five", "6"),
        ("4", "6"),
    ]
    assert [row["id"] for row in every] == [f"x#{number}" for number in range(5)]
    assert len(rows_of(ULTRAFEEDBACK, pairs="all", min_gap=6.5)) == 2
    drawn = {rows_of(ULTRAFEEDBACK, pairs="best_random", seed=seed)[0]["rejected"] for seed in range(20)}
    assert drawn == {"4", "6"}
    (group,) = rows_of(ULTRAFEEDBACK, pairs="group")
    assert (group["responses"], group["rewards"]) == (["6", "5", "five", "4"], [2.0, 9.0, 9.0, 3.0])


def test_ratings_of_aspects_may_contradict_the_overall_score() -> None:
    record = {
        "instruction": "q",
        "completions": [
            {"response": "a", "overall_score": 9, "annotations": {"help": {"Rating": "1"}}},
            {"response": "b", "overall_score": 2, "annotations": {"help": {"Rating": "5"}}},
        ],
    }
    with pytest.raises(DataToolsError, match="fine-grained rating contradicts"):
        rows_of(record, pairs="best_random")


def test_steps_that_bring_their_line_ends_are_joined_as_they_are() -> None:
    (row,) = rows_of({"prompt": "p", "completions": ["a\n\n", "b"], "labels": [1, 1]})
    assert (row["completion"], row["label"], row["first_error_step"]) == ("a\n\nb", True, None)
    assert [row["completion"][a:b] for a, b in row["completion_steps"]] == ["a\n\n", "b"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"conversations": []}, "must be a list of turns"),
        ({"conversations": [{"from": "alien", "value": "x"}]}, "a turn of 'alien'. Known: human"),
        ({"conversations": [{"from": "human"}]}, "a turn without speaker or text"),
        ({"conversations": [{"from": "human", "value": "x"}]}, "does not end with an answer"),
        ({**SHAREGPT, "conversations": [{"from": "gpt", "value": "x"}]}, "must end with a turn of the user"),
        ({**SHAREGPT, "chosen": {"from": "human", "value": "x"}}, "must be an answer of the assistant"),
        ({"instruction": "x", "output": None}, "column 'output' must be text; got NoneType"),
        ({"instruction": "x", "history": [1], "output": "y"}, "'history' must be a list of question and answer"),
        ({**STEPWISE, "labels": [True]}, "one label for each step"),
        ({**STEPWISE, "labels": [True, 2, True]}, "a step's label must be true or false"),
        ({**STEPWISE, "completions": "abc"}, "must be a list of texts"),
        ({**HH, "rejected": HH["rejected"].replace("Hi", "Ho")}, "differ in more than the last answer"),  # type: ignore[attr-defined]
        ({**HH, "rejected": "\n\nHuman: a\n\nHuman: b"}, "two turns of one speaker in a row"),
        ({**ULTRAFEEDBACK, "completions": [{"response": "a", "score": 1}] * 2}, "scores that are far enough apart"),
        ({"prompt": "p", "responses": ["a"], "rewards": [1, 2]}, "must be lists of the same length"),
        ({"chosen": [USER, GOOD], "rejected": [BAD, GOOD]}, "share no message, and there is no prompt"),
    ],
)
def test_a_record_that_lacks_something_is_refused_with_its_place(record: dict[str, Any], message: str) -> None:
    with pytest.raises(DataToolsError, match=rf"^f:1: .*{message}"):
        rows_of(record)


def test_convert_writes_rows_counts_shapes_and_rejects_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_records(source, [SHAREGPT, HH, STEPWISE, ULTRAFEEDBACK, {"id": "z", "text": "x"}])
    assert main(["convert", str(source), "--out", str(out)]) == 0
    assert [row["converted_from"] for row in read_records(out)] == ["sharegpt", "hh", "stepwise", "ultrafeedback"]
    assert [row["id"] for row in read_records(out)] == ["s", "h", "w", "u"]
    (entry,) = read_records(tmp_path / "out.jsonl.rejects.jsonl")
    assert (entry["id"], entry["reason"]) == ("z", "unknown_shape")
    assert entry["detail"] == "no known shape has the columns id, text."
    assert "sharegpt" in capsys.readouterr().out
    assert main(["convert", str(source), "--out", str(out), "--shape", "hh", "--overwrite", "--json"]) == 0
    reasons = [entry["reason"] for entry in read_records(tmp_path / "out.jsonl.rejects.jsonl")]
    assert reasons == ["wrong_shape"] * 4


def test_the_shapes_of_the_option_are_the_shapes_there_are() -> None:
    from data_tools.commands.convert import ConvertOptions

    options = ConvertOptions.model_json_schema()["properties"]["shape"]["enum"]
    assert options == ["auto", *SHAPES]
    with pytest.raises(DataToolsError, match=r"there is no shape 'x'\. Shapes: sharegpt"):
        list(convert_record({}, "x", id="i", where="w", options=ShapeOptions()))
