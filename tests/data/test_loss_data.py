"""The small files under recipes/data: made by the rules that their script states, fit for the demonstration model."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from transformers import AutoTokenizer

import prefopt.demo
from data_tools.answers import final_answer, same_answer
from prefopt.data import DataOptions, EncodedRow, encode_row

FOLDER = Path(__file__).parents[2] / "recipes" / "data"
LARGEST = 300_000


@cache
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_loss_data", FOLDER / "make_loss_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def records(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / "tiny-math" / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["scored", "unpaired", "steps", "weighted", "step_pairs", "rise_pairs", "edits"])
def test_files_that_need_no_model_are_what_the_script_makes(name: str) -> None:
    makers = script()
    made = [json.loads(json.dumps(record)) for record in makers.distinct(makers.MAKERS[name]())]
    assert made == records(name)


def test_every_maker_has_its_file_and_its_words() -> None:
    words = script().__doc__
    for name in script().MAKERS:
        assert f"- `{name}`:" in words
        path = FOLDER / "tiny-math" / f"{name}.jsonl"
        assert 50 <= len(records(name)) <= 400
        assert path.stat().st_size < LARGEST


def test_scores_favour_the_right_answer() -> None:
    assert all(row["score_chosen"] > row["score_rejected"] for row in records("scored"))


def test_labels_say_whether_the_answer_is_right() -> None:
    rows = records("unpaired")
    assert all(row["label"] == same_answer(final_answer(row["completion"]), row["answer"]) for row in rows)
    assert 0.3 < sum(row["label"] for row in rows) / len(rows) < 0.5


def test_step_spans_cover_the_solutions() -> None:
    for row in records("steps"):
        for side in ("chosen", "rejected"):
            spans = row[f"{side}_steps"]
            assert "".join(row[side][start:end] for start, end in spans) == row[side]
            assert all(row[side][start:end].startswith(f"Step {n}:") for n, (start, end) in enumerate(spans, 1))


def test_difference_spans_hold_what_the_other_side_has_not() -> None:
    for row in records("edits"):
        rest = {}
        for side in ("chosen", "rejected"):
            text, spans = row[side], row[f"diff_spans_{side}"]
            edges = [0, *(edge for span in spans for edge in span), len(text)]
            rest[side] = "".join(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)).split()
        assert "".join(rest["chosen"]) == "".join(rest["rejected"])


def test_groups_have_better_and_worse_responses_with_a_reward_per_step() -> None:
    for row in records("groups"):
        assert {0.0, 1.0} == set(row["rewards"])
        for text, spans, rewards in zip(
            row["responses"], row["responses_steps"], row["responses_step_rewards"], strict=True
        ):
            assert spans[-1][1] == len(text)
            assert len(spans) == len(rewards)


def test_the_dispreferred_response_is_the_last_and_the_only_wrong_one() -> None:
    for row in records("dispreferred"):
        right = [same_answer(final_answer(text), row["answer"]) for text in row["responses"]]
        assert right == [reward == 1 for reward in row["rewards"]] == [True] * (len(right) - 1) + [False]


def test_deviation_weights_of_one_prompt_average_to_one() -> None:
    found = script().deviation_weights(["a b c", "a b d", "e f g h", "a b c d"])
    assert sum(found) / len(found) == pytest.approx(1, abs=1e-4)
    assert max(found) == found[2]
    assert script().deviation_weights(["a", "a"]) == [1.0, 1.0]


BUILT = (Path(prefopt.demo.__file__).parent / "tiny-math" / "model.safetensors").is_file()


@pytest.mark.skipif(not BUILT, reason="the demonstration models are not built: make tiny-math")
def test_token_scores_belong_to_the_tokens_of_training() -> None:
    tokenizer = AutoTokenizer.from_pretrained(prefopt.demo.demo_model_path("demo:tiny-math"))
    options = DataOptions(template="always", max_length=256, needs=("token_scores",))
    for record in records("token_scores"):
        row = encode_row(record, tokenizer, options)
        assert isinstance(row, EncodedRow), row
        assert [len(scores) for scores in row.tokens["token_scores"]] == [len(ids) for ids in row.responses]
