"""Pairs out of labelled samples, and plausible negatives."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from data_tools.cli import main
from data_tools.pairing import irpo_pairs, without_similar
from data_tools.records import read_records, write_records

Captured = pytest.CaptureFixture[str]


def run(tmp_path: Path, name: str, rows: list[dict[str, Any]], *options: str) -> list[dict[str, Any]]:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_records(source, rows)
    code = main([name, str(source), "--out", str(out), "--overwrite", "--json", *options])
    found = list(read_records(out))
    assert code == (0 if found else 1)
    return found


def rejects(tmp_path: Path) -> dict[str, str]:
    return {entry["id"]: entry["reason"] for entry in read_records(tmp_path / "out.jsonl.rejects.jsonl")}


def test_one_empty_side_gives_no_pair() -> None:
    assert not list(irpo_pairs([], ["x"], 3))
    assert not list(irpo_pairs(["x"], [], 3))


def test_similar_samples_of_one_side_count_once() -> None:
    texts = ["a b c d", "a b c d e", "a b c x y", "d c b a"]
    assert without_similar(texts, 0.7) == ["a b c d", "a b c x y"]
    assert without_similar(texts, 1.0) == texts


def test_pairs_come_from_rows_anywhere_in_the_file(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{n % 3}", "completion": f"p{n % 3} sample {n}", "label": n < 5} for n in range(9)]
    found = run(tmp_path, "pair", rows)
    assert {row["prompt"] for row in found} == {"p0", "p1", "p2"}
    for row in found:
        assert row["chosen"].startswith(row["prompt"])
        assert row["rejected"].startswith(row["prompt"])
        assert int(row["chosen"][-1]) < 5 <= int(row["rejected"][-1])
    assert len({(row["chosen"], row["rejected"]) for row in found}) == len(found)


def test_answers_say_what_is_right_where_no_label_does(tmp_path: Path) -> None:
    responses = ["The answer is 12", "So #### 13", "I do not know", "The answer is 12.0"]
    rows = [{"id": "q", "prompt": "p", "responses": responses, "answer": "12", "solution": "6 * 2 = 12\n#### 12"}]
    found = run(tmp_path, "pair", rows, "--method", "dpo_st", "--count", "9")
    assert {row["rejected"] for row in found} == {"So #### 13"}
    assert {row["chosen"] for row in found} == {"The answer is 12", "The answer is 12.0", "6 * 2 = 12\n#### 12"}
    assert {row["answer"] for row in found} == {"12"}
    found = run(tmp_path, "pair", rows, "--unclear", "wrong", "--no-gold", "--count", "99")
    assert {row["rejected"] for row in found} == {"So #### 13", "I do not know"}
    assert {row["chosen"] for row in found} == {"The answer is 12", "The answer is 12.0"}


def test_no_pair_repeats_and_the_seed_decides_the_order(tmp_path: Path) -> None:
    rows = [{"id": "q", "prompt": "p", "responses": list("abcdef"), "labels": [True] * 2 + [False] * 4}]
    first = run(tmp_path, "pair", rows, "--count", "100")
    assert len(first) == 4  # lcm(2, 4)
    assert run(tmp_path, "pair", rows, "--count", "100") == first
    assert any(run(tmp_path, "pair", rows, "--seed", str(seed)) != first for seed in range(1, 9))


def test_problems_with_one_side_and_samples_without_verdict_are_rejected(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "prompt": "p", "completion": "x", "label": True},
        {"id": "b", "prompt": "q", "completion": "x", "label": False},
        {"id": "c", "prompt": "r", "completion": "x"},
        {"id": "d", "prompt": "s", "completion": "x", "label": "yes"},
        {"id": "e", "prompt": "t", "responses": ["x", "y"], "rewards": [1.0]},
        {"id": "f", "completion": "x", "label": True},
        {"id": "g", "prompt": "u", "completion": "x", "reward": "much"},
    ]
    assert not run(tmp_path, "pair", rows)
    assert rejects(tmp_path) == {
        "a": "no_wrong_sample",
        "b": "no_right_sample",
        "c": "no_label",
        "d": "bad_label",
        "e": "bad_label",
        "f": "missing_column",
        "g": "bad_score",
    }


def test_negatives_are_the_best_of_the_wrong_samples(tmp_path: Path) -> None:
    samples = [
        ("right", True, 0.9),
        ("poor", False, 0.1),
        ("good", False, 0.8),
        ("fair", False, 0.5),
        ("no", False, None),
    ]
    rows = [
        {"id": name, "prompt": "p", "completion": name, "label": label} | ({} if score is None else {"score": score})
        for name, label, score in samples
    ]
    (row,) = run(tmp_path, "negatives", rows)
    assert (row["chosen"], row["rejected"], row["negative_values"]) == ("right", "good", [0.8])
    (row,) = run(tmp_path, "negatives", rows, "--count", "3")
    assert row["rejected"] == ["good", "fair", "poor"]
    (row,) = run(tmp_path, "negatives", rows, "--max-value", "0.6")
    assert row["rejected"] == "fair"
    (row,) = run(tmp_path, "negatives", rows, "--form", "^f")
    assert row["rejected"] == "fair"


def test_negatives_by_likeness_need_no_scores(tmp_path: Path) -> None:
    responses = ["12 * 8 = 96\n#### 96", "12 * 8 = 98\n#### 98", "no idea\n#### 7"]
    rows = [{"id": "q", "prompt": "p", "responses": responses, "answer": 96}]
    (row,) = run(tmp_path, "negatives", rows, "--by", "similarity")
    assert row["rejected"] == responses[1]
    assert not run(tmp_path, "negatives", rows, "--by", "mean_logp")
    assert rejects(tmp_path) == {"q": "no_plausible_negative"}


def test_a_form_that_is_no_expression_is_refused(tmp_path: Path, capsys: Captured) -> None:
    source = tmp_path / "in.jsonl"
    write_records(source, [])
    assert main(["negatives", str(source), "--out", str(tmp_path / "o.jsonl"), "--form", "("]) == 2
    assert "--form is no regular expression" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pair", "negatives"])
def test_shards_and_the_order_of_rows_change_no_pair(tmp_path: Path, name: str) -> None:
    rows = [
        {"id": f"{n}", "prompt": f"p{n % 5}", "completion": f"text {n}", "label": n % 3 == 0, "score": n / 60}
        for n in range(60)
    ]

    def pairs(rows: list[dict[str, Any]], *options: str) -> list[tuple[str, str, str]]:
        return sorted((r["prompt"], r["chosen"], r["rejected"]) for r in run(tmp_path, name, rows, *options))

    whole = pairs(rows)
    assert len(whole) >= 5
    assert pairs(rows[::-1]) == whole
    assert sorted(pair for shard in ("1/2", "2/2") for pair in pairs(rows, "--shard", shard)) == whole


def test_id_gold_and_answer_of_a_prompt_do_not_depend_on_the_order_of_its_rows(tmp_path: Path) -> None:
    rows = [
        {"id": "b", "prompt": "p", "completion": "no", "label": False, "solution": "second"},
        {"id": "a", "prompt": "p", "completion": "yes", "label": True, "solution": "first", "answer": "1"},
        {"id": "c", "prompt": "p", "completion": "maybe", "label": True, "answer": "1.0"},
    ]
    found = [run(tmp_path, "pair", [rows[place] for place in order]) for order in permutations(range(3))]
    assert all(pairs == found[0] for pairs in found)
    assert {(row["source_id"], row["answer"]) for row in found[0]} == {("a", "1")}
    assert "first" in {row["chosen"] for row in found[0]}


@pytest.mark.parametrize("command", [("pair",), ("negatives", "--by", "similarity")])
def test_samples_that_contradict_each_other_are_counted(tmp_path: Path, command: tuple[str, ...]) -> None:
    rows = [
        {"id": "1", "prompt": "p", "completion": "x", "label": True},
        {"id": "2", "prompt": "p", "completion": "x", "label": False},
        {"id": "3", "prompt": "p", "completion": "y", "label": True},
        {"id": "4", "prompt": "p", "completion": "z", "label": False},
        {"id": "5", "prompt": "q", "completion": "The answer is 3.", "answer": "3"},
        {"id": "6", "prompt": "q", "completion": "The answer is 4.", "answer": "4"},
    ]
    name, *options = command
    (pair,) = run(tmp_path, name, rows, *options)
    assert (pair["chosen"], pair["rejected"]) == ("y", "z")
    refused = list(read_records(tmp_path / "out.jsonl.rejects.jsonl"))
    assert {(row["reason"], row["line"], row["id"]) for row in refused} == {
        ("contradictory_label", 1, "1"),
        ("contradictory_answer", 5, "5"),
    }
    said = {row["detail"] for row in refused}
    assert said == {
        "the same sample is labelled right and wrong: 'x'",
        "the prompt has the answer '3' in one row and '4' in another",
    }
