"""Numbers and marks beside pairs, against the worked values of the method sheets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from data_tools.signals import contrast, curriculum, deviation, differences, margins, relabel

VECTORS = Path(__file__).parents[1] / "vectors" / "data.json"
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in json.loads(VECTORS.read_text(encoding="utf-8"))}


def near(values: object) -> Any:
    return pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize("name", ["cdpo_ce_score/1", "cdpo_ce_score/2"])
def test_token_scores_are_as_worked(name: str) -> None:
    case = CASES[name]
    given = case["inputs"]
    scores = contrast.token_scores(
        given["positive_logits"], given["negative_logits"], given["labels"], ce_beta=case["params"]["ce_beta"]
    )
    assert scores == near(case["expected"]["scores"])
    assert [1 - score for score in scores] == near(case["expected"]["weights_rejected"])


def test_token_scores_do_not_depend_on_a_constant_and_stay_finite() -> None:
    up, down = [[2.0, 0.5, -1.0]], [[1.0, 1.2, -0.5]]
    shifted = contrast.token_scores([[value - 1e4 for value in up[0]]], [[value + 1e4 for value in down[0]]], [1])
    assert shifted == pytest.approx(contrast.token_scores(up, down, [1]), abs=1e-9)
    assert contrast.token_scores([[1e4, 0.0]], [[0.0, 1e4]], [1]) == [0.0]
    with pytest.raises(ValueError, match="longer than"):
        contrast.token_scores([[1.0, 2.0]], [[1.0, 2.0, 3.0]], [0])


def test_difference_masks_are_as_worked() -> None:
    case = CASES["bmc_diff_masks"]
    chosen, rejected, skip = (case["inputs"][name] for name in ("chosen_ids", "rejected_ids", "skip_ids"))
    expected = case["expected"]
    masks = differences.difference_masks(chosen, rejected)
    assert [list(map(int, mask)) for mask in masks] == [expected["chosen_diff"], expected["rejected_diff"]]
    masks = differences.difference_masks(chosen, rejected, skip=skip)
    assert [list(map(int, mask)) for mask in masks] == [
        expected["chosen_diff_skipping"],
        expected["rejected_diff_skipping"],
    ]


def test_difference_spans_cover_what_differs_and_nothing_else() -> None:
    chosen, rejected = "He has 12 * 8 = 96 pens now.", "He has 21 * 8 = 168 pens."
    spans = differences.difference_spans(chosen, rejected)
    assert [chosen[a:b] for a, b in spans.chosen] == ["12", "96", "now"]
    assert [rejected[a:b] for a, b in spans.rejected] == ["21", "168"]
    assert differences.difference_spans(chosen, chosen) == differences.Spans([], [])


def test_the_middle_of_long_texts_differs_as_a_whole() -> None:
    long = ["a", "b"] * differences.MAX_TOKENS
    changed = [*long[:10], "x", *long[11:20], "y", *long[21:]]
    mask, other = differences.difference_masks(long, changed)
    assert [place for place, marked in enumerate(mask) if marked] == list(range(10, 21))
    assert mask == other
    assert not any(differences.difference_masks(long, list(long))[0])


def test_curriculum_stages_are_as_worked() -> None:
    case = CASES["curriculum_thresholds"]
    gaps, groups = case["inputs"]["score_differences"], case["params"]["groups"]
    assert curriculum.thresholds(gaps, groups) == near(case["expected"]["thresholds"])
    assert curriculum.stages(gaps, groups) == case["expected"]["stages"]


def test_quantile_stages_of_skewed_differences_grow_evenly() -> None:
    gaps = [0.01 * place for place in range(99)] + [100.0]
    assert [len(stage) for stage in curriculum.stages(gaps, 5)] == [1, 1, 1, 100]
    assert [len(stage) for stage in curriculum.stages(gaps, 5, spacing="quantile")] == [26, 51, 75, 100]


@pytest.mark.parametrize(("gaps", "groups"), [([], 5), ([1.0], 1)])
def test_a_curriculum_without_pairs_or_stages_is_refused(gaps: list[float], groups: int) -> None:
    with pytest.raises(ValueError, match="needs pairs and at least 2 groups"):
        curriculum.stages(gaps, groups)


def test_a_scored_pair_becomes_two_as_worked() -> None:
    case = CASES["reward_augment"]
    rows = list(relabel.reward_augment(case["inputs"]))
    assert [{name: row[name] for name in ("goal", "chosen", "rejected")} for row in rows] == case["expected"]["rows"]
    assert [row["score_chosen"] - row["score_rejected"] for row in rows] == [5.0, -5.0]


def test_relabelling_never_shares_messages_between_rows() -> None:
    record = {"prompt": [{"role": "user", "content": "p"}], "chosen": [{"role": "assistant", "content": "a"}]}
    record |= {"rejected": [{"role": "assistant", "content": "b"}], "score_chosen": 2, "score_rejected": 1}  # type: ignore[dict-item]
    first, second = relabel.reward_augment(record)
    first["chosen"][0]["content"] = "changed"
    first["prompt"][0]["content"] = "changed"
    assert second["rejected"] == [{"role": "assistant", "content": "a"}]
    assert second["prompt"] == record["prompt"] == [{"role": "user", "content": "p"}]


def test_equal_scores_give_no_rows_and_missing_ones_are_named() -> None:
    assert not list(relabel.reward_augment({"chosen": "a", "rejected": "b", "score_chosen": 3, "score_rejected": 3.0}))
    with pytest.raises(ValueError, match="'score_rejected' must be a number; got None"):
        list(relabel.reward_augment({"chosen": "a", "rejected": "b", "score_chosen": 3}))


def test_the_goal_stands_in_a_system_message() -> None:
    assert relabel.with_goal("p", 8.0)[0] == {
        "role": "system",
        "content": "Answer with a quality of 8 on a scale from 1 to 10.",
    }
    given = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "p"}]
    assert relabel.with_goal(given, 7.5)[0]["content"].startswith("Be kind.\nAnswer with a quality of 7.5 ")
    assert given[0]["content"] == "Be kind."


def test_deviations_are_as_worked() -> None:
    case = CASES["deviation_score"]
    found = deviation.deviations(case["inputs"]["embeddings"])
    assert found == near(case["expected"]["deviation"])
    assert deviation.normalised(found) == near(case["expected"]["normalised"])


def test_deviation_weights_have_mean_one_and_need_three_responses() -> None:
    vectors = CASES["deviation_score"]["inputs"]["embeddings"]
    found = deviation.weights([vectors, vectors[::-1]])
    assert sum(found) / len(found) == near(1.0)
    single = [0.375, 0.0, 1.0, 0.625]
    assert deviation.weights([vectors]) == near([value / 0.5 for value in single])
    assert deviation.weights([vectors[:2]]) == [1.0, 1.0]
    assert deviation.weights([[[1.0, 2.0]] * 3]) == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="zeros has no direction"):
        deviation.deviations([[0.0, 0.0], [1.0, 0.0]])


def test_the_noisy_split_is_as_worked() -> None:
    case = CASES["compo_noisy_split"]
    chosen, rejected = zip(*case["inputs"]["ref_seq_logps_chosen_rejected"], strict=True)
    gaps = margins.margins(chosen, rejected)
    margin = case["params"]["margin"]
    assert margins.noisy(gaps, margin) == case["expected"]["noisy_paper"]
    assert margins.noisy(gaps, margin, ordered=True) == case["expected"]["noisy_released"]


def test_selection_by_the_reference_is_as_worked() -> None:
    case = CASES["ref_prob_selection"]
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
    assert margins.band(sums, -1.0, 20.0) == [0, 1, 4]
    with pytest.raises(ValueError, match="above 0 and at most 1; got 0"):
        margins.select(sums, 0)
