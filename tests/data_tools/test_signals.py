"""Numbers and marks beside pairs."""

from __future__ import annotations

from typing import Any

import pytest

from data_tools.signals import contrast, curriculum, deviation, differences, margins, relabel


def near(values: object) -> Any:
    return pytest.approx(values, abs=1e-12)


def test_token_scores_do_not_depend_on_a_constant_and_stay_finite() -> None:
    up, down = [[2.0, 0.5, -1.0]], [[1.0, 1.2, -0.5]]
    shifted = contrast.token_scores([[value - 1e4 for value in up[0]]], [[value + 1e4 for value in down[0]]], [1])
    assert shifted == pytest.approx(contrast.token_scores(up, down, [1]), abs=1e-9)
    assert contrast.token_scores([[1e4, 0.0]], [[0.0, 1e4]], [1]) == [0.0]
    with pytest.raises(ValueError, match="longer than"):
        contrast.token_scores([[1.0, 2.0]], [[1.0, 2.0, 3.0]], [0])


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


def test_quantile_stages_of_skewed_differences_grow_evenly() -> None:
    gaps = [0.01 * place for place in range(99)] + [100.0]
    assert [len(stage) for stage in curriculum.stages(gaps, 5)] == [1, 1, 1, 100]
    assert [len(stage) for stage in curriculum.stages(gaps, 5, spacing="quantile")] == [26, 51, 75, 100]


@pytest.mark.parametrize(("gaps", "groups"), [([], 5), ([1.0], 1)])
def test_a_curriculum_without_pairs_or_stages_is_refused(gaps: list[float], groups: int) -> None:
    with pytest.raises(ValueError, match="needs pairs and at least 2 groups"):
        curriculum.stages(gaps, groups)


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


def test_deviation_weights_have_mean_one_and_need_three_responses() -> None:
    vectors = [[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.0, 1.0, 0.0], [0.6, 0.0, 0.8]]
    found = deviation.weights([vectors, vectors[::-1]])
    assert sum(found) / len(found) == near(1.0)
    single = [0.375, 0.0, 1.0, 0.625]
    assert deviation.weights([vectors]) == near([value / 0.5 for value in single])
    assert deviation.weights([vectors[:2]]) == [1.0, 1.0]
    assert deviation.weights([[[1.0, 2.0]] * 3]) == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="zeros has no direction"):
        deviation.deviations([[0.0, 0.0], [1.0, 0.0]])


def test_margins_are_cut_to_a_band_or_a_share_of_the_rows() -> None:
    gaps = [12.0, -0.5, 30.0, -8.0, 3.0]
    assert margins.band(gaps, -1.0, 20.0) == [0, 1, 4]
    assert margins.select(gaps, 0.4) == [0, 2]
    with pytest.raises(ValueError, match="above 0 and at most 1; got 0"):
        margins.select(gaps, 0)
