"""The claims of a report are data: each is had again from the table of pairs or from the metrics."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from prefopt.report import build_report, write_report
from prefopt.report.claims import Claim, compact, written
from tests.report import made

Rows = list[dict[str, Any]]


def share(rows: Rows, holds: Callable[[dict[str, Any]], bool]) -> float:
    return sum(map(holds, rows)) / len(rows)


def mean(rows: Rows, name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)


def ranks(values: list[float]) -> list[float]:
    return [sum(other < value for other in values) + sum(other == value for other in values) / 2 for value in values]


def spearman(rows: Rows, first: str, second: str) -> float:
    return float(np.corrcoef(*(ranks([row[name] for row in rows]) for name in (first, second)))[0, 1])


AFTER: dict[str, Callable[[Rows], float]] = {
    "chosen_dropped": lambda rows: share(rows, lambda row: row["chosen_delta"] < 0),
    "both_dropped": lambda rows: share(rows, lambda row: row["chosen_delta"] < 0 and row["rejected_delta"] < 0),
    "margin_grew": lambda rows: share(rows, lambda row: row["chosen_delta"] > row["rejected_delta"]),
    "chosen_delta": lambda rows: mean(rows, "chosen_delta"),
    "rejected_delta": lambda rows: mean(rows, "rejected_delta"),
    "chosen_delta_per_token": lambda rows: mean(rows, "chosen_delta") / mean(rows, "chosen_tokens"),
    "chosen_delta_mean_per_token": lambda rows: (
        sum(row["chosen_delta"] / row["chosen_tokens"] for row in rows) / len(rows)
    ),
    **{
        f"branch_{side}_{when}": lambda rows, name=f"branch_{side}_{when}": mean(rows, name)  # type: ignore[misc]
        for side in ("chosen", "rejected", "other")
        for when in ("start", "now")
    },
    "greedy_track_change": lambda rows: mean(rows, "greedy_now") - mean(rows, "greedy_start"),
    "gainer_is_third": lambda rows: mean(rows, "branch_gainer_is_third"),
    "spearman_ln_ches": lambda rows: spearman(rows, "ln_ches", "chosen_delta"),
}
BEFORE: dict[str, Callable[[Rows], float]] = {
    "ln_ches_median": lambda rows: float(np.quantile([row["ln_ches"] for row in rows], 0.5)),
    "ln_ches_high": lambda rows: float(np.quantile([row["ln_ches"] for row in rows], 0.95)),
    "near_duplicates": lambda rows: share(rows, lambda row: row["edit_distance"] < 0.1),
    "flagged": lambda rows: share(rows, lambda row: row["flag"] != ""),
    "length_gap": lambda rows: mean(rows, "length_gap"),
    "spearman_length": lambda rows: spearman(rows, "ches", "length_gap"),
}


def claims(*folders: Path) -> dict[str, Claim]:
    (column,) = build_report(folders).columns
    return {claim.key: claim for claim in column.findings.claims}


@pytest.mark.parametrize(("moved", "rebuilt"), [(True, AFTER), (False, BEFORE)])
def test_each_claim_is_rebuilt_from_the_table(
    tmp_path: Path, moved: bool, rebuilt: dict[str, Callable[[Rows], float]]
) -> None:
    folder = made.diagnosis(tmp_path / "some", made.pairs(250, moved=moved))
    rows = pq.read_table(folder / "pairs.parquet").to_pylist()
    found = claims(folder)
    assert found.keys() == rebuilt.keys()
    for key, rebuild in rebuilt.items():
        assert found[key].value == pytest.approx(rebuild(rows), rel=1e-9), key
        low, high = found[key].low, found[key].high
        assert (low is None) == (high is None)
        assert low is None or high is None or low <= found[key].value <= high, key


def test_claims_and_summary_agree(tmp_path: Path) -> None:
    folder = made.diagnosis(tmp_path / "some", made.pairs(250))
    summary, found = json.loads((folder / "summary.json").read_text())["movement"], claims(folder)
    for key in ("chosen_dropped", "both_dropped", "margin_grew"):
        assert found[key].value == pytest.approx(summary[key], rel=1e-12)
    per = {"chosen_delta": "per_response", "chosen_delta_per_token": "per_token"}
    for key, name in {**per, "chosen_delta_mean_per_token": "mean_per_token"}.items():
        assert found[key].value == pytest.approx(summary["chosen"][name], rel=1e-9)
    for side in ("chosen", "rejected", "other"):
        assert found[f"branch_{side}_now"].value == pytest.approx(summary["branch"][side]["now"], rel=1e-9)


def test_the_tokens_that_gained_most_are_rebuilt_from_the_table(tmp_path: Path) -> None:
    draw = random.Random(2)
    rows = made.pairs(250)
    for row in rows:
        gainer = draw.choices([f" word {k}" for k in range(14)], weights=range(1, 15))[0]
        row |= {"branch_gainer": gainer, "branch_gain": draw.random()}
    for row in rows[:20]:
        row |= {name: None for name in row if name.startswith("branch_")}
    folder = made.diagnosis(tmp_path / "some", rows)
    gains: dict[str, list[float]] = {}
    for row in pq.read_table(folder / "pairs.parquet").to_pylist():
        if row["branch_gainer"] is not None:
            gains.setdefault(row["branch_gainer"], []).append(row["branch_gain"])
    expected = sorted(
        ((f"“{token}”", len(all_)) for token, all_ in gains.items()), key=lambda kind: (-kind[1], kind[0])
    )
    (column,) = build_report([folder]).columns
    assert [(token, count) for token, count, _ in column.gainers] == expected[:10]
    for token, count, gain in column.gainers:
        assert gain == pytest.approx(sum(gains[token.strip("“”")]) / count, rel=1e-9)


NUMBER = re.compile(r"[-+−]?\d[\d,.]*(?: %)?")


@pytest.mark.parametrize(("moved", "rebuilt"), [(True, AFTER), (False, BEFORE)])
def test_the_words_hold_no_other_number(
    tmp_path: Path, moved: bool, rebuilt: dict[str, Callable[[Rows], float]]
) -> None:
    """Every number in the headline and its sentences is one rebuilt from the table, an end of its interval, a count of
    rows of the table, or part of a name."""
    folder = made.diagnosis(tmp_path / "some", made.pairs(250, moved=moved))
    rows = pq.read_table(folder / "pairs.parquet").to_pylist()
    (column,) = build_report([folder]).columns
    by = {claim.key: claim for claim in column.findings.claims}
    known = {"95 %", str(len(rows))}  # of "95 % interval", and all pairs
    known |= {"10 %"} if not moved else {str(sum(row["chosen_delta"] < 0 for row in rows))}  # "under 10 % ... differ"
    for key, rebuild in rebuilt.items():
        texts = [written(rebuild(rows), by[key].unit), f"{rebuild(rows):+.2f}".replace("-", "−"), by[key].interval]
        known |= {number for text in texts for number in NUMBER.findall(text)}
    for sentence in (column.findings.verdict, *column.findings.sentences):
        for number in NUMBER.findall(sentence):
            assert number.rstrip(".,") in known, (number, sentence)


def test_every_number_of_the_sentences_is_a_claim(tmp_path: Path) -> None:
    """What the page says in words is what its data say: the words are made of written claims only."""
    folder = made.diagnosis(tmp_path / "some", made.pairs(250))
    (column,) = build_report([folder]).columns
    by = {claim.key: claim for claim in column.findings.claims}
    first, second, third, fourth = column.findings.sentences[:4]
    for sentence, keys in (
        (first, ("chosen_dropped", "both_dropped")),
        (second, ("chosen_delta", "rejected_delta", "margin_grew")),
        (third, ("greedy_track_change",)),
        (fourth, ("branch_other_start", "branch_other_now", "gainer_is_third")),
    ):
        for key in keys:
            assert by[key].shown in sentence
    fallen = sum(row["chosen_delta"] < 0 for row in pq.read_table(folder / "pairs.parquet").to_pylist())
    assert f" in {fallen} of 250 pairs" in first
    page, text = write_report([folder], tmp_path / "out")
    for sentence in (column.findings.verdict, *column.findings.sentences):
        assert sentence in page.read_text()
        assert sentence in text.read_text()


@pytest.mark.parametrize(
    ("delta", "verdict"),
    [(-1.0, "became less likely on the whole"), (1.0, "became more likely"), (0.0, "in like measure")],
)
def test_the_verdict_follows_the_mean_movement(tmp_path: Path, delta: float, verdict: str) -> None:
    rows = [row | {"chosen_delta": delta + 0.1 * (-1) ** (k // 2)} for k, row in enumerate(made.pairs(80))]
    (column,) = build_report([made.diagnosis(tmp_path / "some", rows)]).columns
    assert verdict in column.findings.verdict


def test_normalisations_with_different_signs_are_all_named(tmp_path: Path) -> None:
    rows = made.pairs(4)
    for row, delta, tokens in zip(rows, (-1.0, -1.0, 2.5, -0.1), (2, 2, 100, 2), strict=True):
        row |= {"chosen_delta": delta, "chosen_tokens": tokens}
    (column,) = build_report([made.diagnosis(tmp_path / "some", rows)]).columns
    assert any("different signs" in sentence for sentence in column.findings.sentences)


@pytest.mark.parametrize(
    ("slope", "words"), [(-1.0, "as the score foretells"), (1.0, "against what"), (0.0, "says little")]
)
def test_what_the_score_foretold(tmp_path: Path, slope: float, words: str) -> None:
    rows = made.pairs(200)
    for number, row in enumerate(rows):
        row["chosen_delta"] = slope * row["ln_ches"] + (0.1 * (-1) ** number if slope == 0 else 0)
    (column,) = build_report([made.diagnosis(tmp_path / "some", rows)]).columns
    assert any(words in sentence for sentence in column.findings.sentences)


@pytest.mark.parametrize(("chosen", "track", "squeezed"), [(-1.0, 0.2, True), (-1.0, -0.2, False), (1.0, 0.2, False)])
def test_squeezing_is_named_where_both_fall_and_the_likeliest_tokens_gain(
    tmp_path: Path, chosen: float, track: float, squeezed: bool
) -> None:
    given = {"chosen_delta": chosen, "rejected_delta": -2.0, "greedy_start": -0.5, "greedy_now": -0.5 + track}
    (column,) = build_report([made.diagnosis(tmp_path / "some", [row | given for row in made.pairs(20)])]).columns
    assert any("squeezed" in sentence for sentence in column.findings.sentences) == squeezed


def test_pairs_without_a_branch_point_are_not_asked_for_one(tmp_path: Path) -> None:
    rows = [{name: value for name, value in row.items() if "branch" not in name} for row in made.pairs(20)]
    rows = [row | {"branch_position": None} for row in rows]
    found = claims(made.diagnosis(tmp_path / "some", rows))
    assert not any(key.startswith("branch") for key in found)


def test_flags_losses_and_length_bias_are_said(tmp_path: Path) -> None:
    rows = made.pairs(60, moved=False)
    for row in rows[:6]:
        row |= {"flag": "empty", "ln_ches": None, "ches": None, "cosine": None, "last_inner_product": None}
    for row in rows[6:]:
        row["ches"] = -100.0 * row["length_gap"]
    folder = made.diagnosis(tmp_path / "some", rows, data={"lost": {"null_field": 1_200}})
    (column,) = build_report([folder]).columns
    said = " ".join(column.findings.sentences)
    assert "10.0 % of pairs are flagged" in said
    assert "1,200 records could not be used" in said
    assert "whose rejected response is the longer one score higher" in said


def test_a_runs_claims_are_its_last_metrics(tmp_path: Path) -> None:
    lines = made.metrics(12)
    found = claims(made.run(tmp_path / "run", lines))
    assert found["displacement/chosen_delta"].value == lines[-2]["displacement/chosen_delta"]
    assert found["loss"].value == lines[-2]["loss"]
    assert found["eval_heldout_answer_accuracy/start"].value == 0.25
    assert found["eval_heldout_answer_accuracy/end"].value == 0.75
    (column,) = build_report([tmp_path / "run"]).columns
    assert "Right answers on heldout: 25.0 % before training, 75.0 % after." in column.findings.sentences


def test_values_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    lines = [*made.metrics(4), {"step": 5, "loss": float("nan"), "displacement/chosen_delta": None}]
    assert claims(made.run(tmp_path / "run", lines))["loss"].value == lines[-3]["loss"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.6504, "share", "65.0 %"),
        (-1.234, "nats", "−1.23 nats"),
        (0.00123, "nats per token", "+0.0012 nats per token"),
        (-0.51234, "", "−0.5123"),
    ],
)
def test_numbers_as_people_read_them(value: float, unit: str, text: str) -> None:
    assert written(value, unit) == text


@pytest.mark.parametrize(("value", "text"), [(-94916.3, "−94,916"), (0.12345, "0.1235"), (0, "0"), (3e9, "3e+09")])
def test_numbers_in_tables(value: float, text: str) -> None:
    assert compact(value) == text


def test_an_interval_names_its_unit_once() -> None:
    assert Claim("k", "words", 0.5, "share", 0.4, 0.6).interval == "40.0 to 60.0 %"
    assert Claim("k", "words", 0.5).interval == ""
