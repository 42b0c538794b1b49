"""Worked values of the method sheets: every case of the file is computed here, and one without a check fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rapidfuzz.distance import Levenshtein

from data_tools.inject import KINDS, dropped_step, inject_at, relation_flip
from data_tools.pairing import irpo_pairs, rank_pairs
from data_tools.pipelines.problem import is_right, read_problem
from data_tools.pipelines.scdpo import Heat
from data_tools.pipelines.step_dpo import step_pairs
from data_tools.run import Row
from data_tools.signals import contrast, curriculum, deviation, differences, margins, relabel
from data_tools.steps import split_steps

Case = dict[str, Any]
CASES: dict[str, Case] = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[1] / "vectors" / "data.json").read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("name", CASES)
def test_worked_values(name: str) -> None:
    """The check is that of the whole name, of the name before its slash, or of `inject`."""
    words = (name, name.partition("/")[0], name.partition(":")[0])
    CHECKS[next(word for word in words if word in CHECKS)](CASES[name])


def near(values: object) -> Any:
    return pytest.approx(values, abs=1e-12)


# --------------------------------------------------------------------------------------------------- injection


def check_equations(case: Case) -> None:
    params = dict(case["params"])
    kind = params.pop("kind", case["id"].removeprefix("inject:").partition("/")[0])
    site, protected = params.pop("site"), params.pop("protected", ())
    text, expected = case["inputs"]["text"], case["expected"]
    assert kind in KINDS
    for propagate in {"equation", "chain"} & set(expected) or {"equation", "chain"}:
        edited = inject_at(text, kind, site, params, propagate=propagate, protected=protected)
        wanted = expected.get(propagate, expected.get("result"))
        assert (edited and edited.text) == wanted, propagate
        if edited is None or propagate == "chain":
            continue
        assert outside(text, edited.spans_old) == outside(edited.text, edited.spans_new)
        if "similarity_equation" in expected:
            assert Levenshtein.distance(text, edited.text) == expected["levenshtein_equation"]
            assert Levenshtein.normalized_similarity(text, edited.text) == near(expected["similarity_equation"])


def check_relation_flip(case: Case) -> None:
    assert relation_flip(case["inputs"]["text"]) == case["expected"]["edited"]


def check_dropped_step(case: Case) -> None:
    assert dropped_step(split_steps(case["inputs"]["text"]), case["params"]["step"]) == case["expected"]["edited"]


def outside(text: str, spans: Any) -> list[str]:
    """What stands between the spans."""
    ends, starts = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(text)]
    return [text[end:start] for end, start in zip(ends, starts, strict=True)]


# ----------------------------------------------------------------------------------------- pairs out of samples


def check_irpo_pairs(case: Case) -> None:
    pairs = irpo_pairs(case["inputs"]["winners"], case["inputs"]["losers"], case["params"]["K"])
    assert [list(pair) for pair in pairs] == case["expected"]["pairs"]


def check_dpo_st_pairs(case: Case) -> None:
    ranked = rank_pairs(case["inputs"]["positives"], case["inputs"]["negatives"])
    found = [[pair.similarity, pair.positive, pair.negative] for pair in ranked]
    assert found == [pytest.approx(row, abs=1e-9) for row in case["expected"]["ranked"]]
    kept = [[pair.positive, pair.negative] for pair in ranked[: case["params"]["max_pairs"]]]
    assert kept == case["expected"]["kept"]


def check_step_dpo_rows(case: Case) -> None:
    given, k = case["inputs"], case["params"]["first_error_step"]
    steps = split_steps(given["wrong_completion"], "numbered")
    right = [text for text, label in given["rectified"] if label]
    assert [is_right(steps.prefix(k) + text, given["answer"]) for text, _ in given["rectified"]] == [
        label for _, label in given["rectified"]
    ]
    item = read_problem(Row({"prompt": given["prompt"], "answer": given["answer"]}, "p", "in", 1))
    assert [pair.row(item) for pair in step_pairs(steps, k, right, splitter="numbered")] == case["expected"]["rows"]


def check_scdpo_temperatures(case: Case) -> None:
    start, cap, steps = case["params"]["start"], case["params"]["cap"], case["inputs"]["generated_step_index"]
    for name, wanted in case["expected"].items():
        heat = Heat(start, float(name.rpartition("_")[2]), cap)
        assert [heat.at(step) for step in steps] == wanted


# ------------------------------------------------------------------------------------------------------ signals


def check_token_scores(case: Case) -> None:
    given = case["inputs"]
    scores = contrast.token_scores(
        given["positive_logits"], given["negative_logits"], given["labels"], ce_beta=case["params"]["ce_beta"]
    )
    assert scores == near(case["expected"]["scores"])
    assert [1 - score for score in scores] == near(case["expected"]["weights_rejected"])


def check_difference_masks(case: Case) -> None:
    chosen, rejected, skip = (case["inputs"][name] for name in ("chosen_ids", "rejected_ids", "skip_ids"))
    expected = case["expected"]
    masks = differences.difference_masks(chosen, rejected)
    assert [list(map(int, mask)) for mask in masks] == [expected["chosen_diff"], expected["rejected_diff"]]
    masks = differences.difference_masks(chosen, rejected, skip=skip)
    assert [list(map(int, mask)) for mask in masks] == [
        expected["chosen_diff_skipping"],
        expected["rejected_diff_skipping"],
    ]


def check_curriculum(case: Case) -> None:
    gaps, groups = case["inputs"]["score_differences"], case["params"]["groups"]
    assert curriculum.thresholds(gaps, groups) == near(case["expected"]["thresholds"])
    assert curriculum.stages(gaps, groups) == case["expected"]["stages"]


def check_reward_augment(case: Case) -> None:
    rows = list(relabel.reward_augment(case["inputs"]))
    assert [{name: row[name] for name in ("goal", "chosen", "rejected")} for row in rows] == case["expected"]["rows"]
    assert [row["score_chosen"] - row["score_rejected"] for row in rows] == [5.0, -5.0]


def check_deviations(case: Case) -> None:
    found = deviation.deviations(case["inputs"]["embeddings"])
    assert found == near(case["expected"]["deviation"])
    assert deviation.normalised(found) == near(case["expected"]["normalised"])


def check_noisy_split(case: Case) -> None:
    chosen, rejected = zip(*case["inputs"]["ref_seq_logps_chosen_rejected"], strict=True)
    gaps = margins.margins(chosen, rejected)
    margin = case["params"]["margin"]
    assert margins.noisy(gaps, margin) == case["expected"]["noisy_paper"]
    assert margins.noisy(gaps, margin, ordered=True) == case["expected"]["noisy_released"]


def check_reference_selection(case: Case) -> None:
    given, expected = case["inputs"], case["expected"]
    chosen, rejected = given["ref_chosen_seq_logps"], given["ref_rejected_seq_logps"]
    sums = margins.margins(chosen, rejected)
    means = margins.margins(chosen, rejected, given["chosen_tokens"], given["rejected_tokens"])
    assert sums == near(expected["gap_sum"])
    assert means == near(expected["gap_mean"])
    fraction = case["params"]["fraction"]
    assert margins.select(sums, fraction, by="signed_top") == expected["keep_signed_sum"]
    assert margins.select(sums, fraction) == expected["keep_abs_sum"]
    assert margins.select(means, fraction, by="signed_top") == expected["keep_signed_mean"]
    assert margins.select(means, fraction) == expected["keep_abs_mean"]


CHECKS: dict[str, Callable[[Case], None]] = {
    "inject": check_equations,
    "inject:relation_flip": check_relation_flip,
    "inject:dropped_step": check_dropped_step,
    "irpo_pairing": check_irpo_pairs,
    "dpo_st_pairs": check_dpo_st_pairs,
    "step_dpo_rows": check_step_dpo_rows,
    "scdpo_temperatures": check_scdpo_temperatures,
    "cdpo_ce_score": check_token_scores,
    "bmc_diff_masks": check_difference_masks,
    "curriculum_thresholds": check_curriculum,
    "reward_augment": check_reward_augment,
    "deviation_score": check_deviations,
    "compo_noisy_split": check_noisy_split,
    "ref_prob_selection": check_reference_selection,
}
