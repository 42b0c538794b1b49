"""The numbers behind the figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prefopt.report.figures import EXTREMES, at_risk, curves, histograms, sampled, thinned
from prefopt.report.folders import Pairs, read
from tests.report import made


def pairs(folder: Path, lines: list[dict[str, object]]) -> Pairs:
    (found,) = read([made.diagnosis(folder, lines)])
    assert found.pairs is not None
    return found.pairs


def test_a_histogram_counts_every_pair_once(tmp_path: Path) -> None:
    lines = made.pairs(300)
    lines[0]["ln_ches"], lines[1]["ln_ches"] = 1e6, None
    (bins,) = histograms([pairs(tmp_path / "a", lines)], "ln_ches")
    assert bins is not None
    assert sum(bins.counts) == 299
    assert bins.high < 1e6
    assert bins.outside >= 1


def test_of_few_pairs_none_lies_outside_the_axis(tmp_path: Path) -> None:
    lines = made.pairs(100)
    (bins,) = histograms([pairs(tmp_path / "a", lines)], "ln_ches")
    assert bins is not None
    assert bins.outside == 0
    assert (bins.low, bins.high) == (min(line["ln_ches"] for line in lines), max(line["ln_ches"] for line in lines))


def test_histograms_of_several_diagnoses_share_their_bins(tmp_path: Path) -> None:
    shifted = [line | {"ln_ches": 5 + line["ln_ches"]} for line in made.pairs(100)]
    first, second = histograms([pairs(tmp_path / "a", made.pairs(100)), pairs(tmp_path / "b", shifted)], "ln_ches")
    assert first is not None
    assert second is not None
    assert (first.low, first.high) == (second.low, second.high)
    assert first.counts != second.counts


def test_a_measure_that_does_not_vary_has_a_histogram(tmp_path: Path) -> None:
    (bins,) = histograms([pairs(tmp_path / "a", [line | {"ches": 3.0} for line in made.pairs(10)])], "ches")
    assert bins is not None
    assert sum(bins.counts) == 10


def test_few_pairs_are_all_shown(tmp_path: Path) -> None:
    assert sampled(pairs(tmp_path / "a", made.pairs(50)), 50) == list(range(50))


def test_of_many_pairs_the_extremes_and_a_sample_are_shown(tmp_path: Path) -> None:
    found = pairs(tmp_path / "a", made.pairs(1_000))
    shown = sampled(found, 300)
    assert len(shown) == 300
    assert shown == sorted(set(shown))
    for name in ("ln_ches", "chosen_delta"):
        order = np.argsort(found.numbers[name])
        assert {*order[:EXTREMES].tolist(), *order[-EXTREMES:].tolist()} <= set(shown)
    rest = np.setdiff1d(np.arange(1_000), shown)
    assert abs(rest.mean() - 500) < 60  # a sample prefers neither end of the file


def test_the_same_pairs_are_drawn_whatever_their_order(tmp_path: Path) -> None:
    lines = made.pairs(500)
    names = []
    for number, some in enumerate((lines, lines[::-1])):
        found = pairs(tmp_path / str(number), some)
        names.append({found.ids[place] for place in sampled(found, 200)})
    assert names[0] == names[1]


def test_pairs_to_read_first_fell_most_one_of_a_prompt_and_none_flagged(tmp_path: Path) -> None:
    lines = made.pairs(40)
    for number, line in enumerate(lines):
        line["chosen_delta"] = float(number)
    lines[0]["flag"] = "empty"
    assert at_risk(pairs(tmp_path / "a", lines), 3) == [1, 2, 4]


def test_before_training_the_highest_scores_are_read_first(tmp_path: Path) -> None:
    lines = made.pairs(6, moved=False)
    for line, score in zip(lines, (None, 1.0, 5.0, 2.0, -1.0, 0.0), strict=True):
        line["ln_ches"] = score
    assert at_risk(pairs(tmp_path / "a", lines), 9) == [2, 1, 5]


def test_thinned_curves_keep_their_mean_and_their_order() -> None:
    line = [(float(step), float(step**2)) for step in range(1_000)]
    short = thinned(line, 100)
    assert len(short) == 100
    assert np.mean([value for _, value in short]) == pytest.approx(np.mean([value for _, value in line]))
    assert [step for step, _ in short] == sorted(step for step, _ in short)
    assert thinned(line[:7], 100) == line[:7]


def test_curves_of_an_evaluation_set_stand_apart(tmp_path: Path) -> None:
    lines = [{"step": step, "eval_loss": 1.0, "eval_held_out_loss": 2.0, "loss": 3.0} for step in range(4)]
    found = {picture.title: picture.lines for picture in curves(read([made.run(tmp_path / "run", lines)]))}
    assert set(found) == {"Loss", "Loss on the evaluation set", "Loss on held_out"}
    assert found["Loss on held_out"][0] == {"loss": [(float(step), 2.0) for step in range(4)]}


def test_runs_without_a_metric_have_an_empty_place(tmp_path: Path) -> None:
    one = made.run(tmp_path / "one")
    other = made.run(tmp_path / "other", [{"step": step, "loss": 0.5} for step in range(4)])
    for picture in curves(read([one, other])):
        assert picture.lines[0] is not None
        assert (picture.lines[1] is not None) == (picture.title == "Loss")
