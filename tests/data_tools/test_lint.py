"""Rules for rows, the surface classifier, and the report on a file."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from data_tools.cli import main
from data_tools.quality.cues import FOLDS, difference, find_cues, fit, solve
from data_tools.quality.damage import mojibake, script
from data_tools.quality.lengths import LengthGap
from data_tools.quality.rules import RULES, Limits, broken
from data_tools.quality.similarity import at_least_similar
from data_tools.quality.surface import FEATURES, surface
from data_tools.records import read_records, write_records
from data_tools.texts import row_texts

Captured = pytest.CaptureFixture[str]
PROMPT = "Tom has three boxes of pens with eight pens in each, and he gives away five. How many pens remain?"


def row(
    chosen: Any = "He has 19.", rejected: Any = "He has 17 pens.", prompt: Any = PROMPT, **more: Any
) -> dict[str, Any]:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, **more}


def names(record: dict[str, Any], **limits: Any) -> set[str]:
    return {name for name, _ in broken(record, Limits(**limits), tuple(RULES))}


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        (row(), set()),
        (row(rejected=None), {"unreadable"}),
        (row(prompt=3), {"unreadable"}),
        ({"chosen": "a", "rejected": "b"}, {"unreadable"}),
        ({"prompt": PROMPT}, {"unreadable"}),
        (row(rejected=" \n"), {"empty"}),
        (row(prompt=""), {"empty"}),
        (row(rejected="He has\n19. "), {"identical"}),
        (row(rejected=["He has 17 pens.", "He has  19."]), {"identical"}),
        (row(rejected="he has, 19"), {"near_identical"}),
        (row("a b " * 100, "a b " * 99 + "a c "), {"near_identical"}),
        (row("a b " * 100, "a b " * 99 + "a c ", error_kind="digit_change"), set()),
        (row("x" * 40, "y"), {"length_ratio"}),
        (row("x" * 200_000, "y" * 200_000), {"too_long"}),
        (row(f"{PROMPT} He has 19 pens.", f"He has 17 pens. {PROMPT}"), {"prompt_leak"}),
        (row("He has 19.<|im_end|>"), {"template_remnant"}),
        (row("[INST] He has 19."), {"template_remnant"}),
        (row("19.\n\nHuman: And then?"), {"template_remnant"}),
        (row("### Response: 19 pens"), {"template_remnant"}),
        (row("An assistant: someone who says Human: often"), set()),
        (row("He has 19â€”I think."), {"mojibake"}),
        (row("CafÃ© 19 pens"), {"mojibake"}),
        (row("Spaß «19» für Ägypten", "Spaß »19« für Ägypten"), {"near_identical"}),
        (row("He has 19\ufffd"), {"replacement_character"}),
        (row("He has 19\x07"), {"control_character"}),
        (row("He\u200b has 19."), {"invisible_character"}),
        (row("У него осталось девятнадцать."), {"foreign_script"}),
        (row("The answer is 18", "The answer is 17", answer="19"), {"chosen_wrong_answer"}),
        (row("The answer is 19", "#### 19.0", answer=19), {"rejected_right_answer"}),
        (row("#### 19", "#### 9**9**9", answer="9**9**9"), set()),
        (row(" 19", " The answer is 19", answer="19", initial_reason_steps="Step 1:"), set()),
    ],
)
def test_a_row_breaks_just_the_rules_it_should(record: dict[str, Any], wanted: set[str]) -> None:
    assert names(record, max_length_ratio=20) == wanted


def test_texts_are_read_from_messages_and_from_what_both_sides_share() -> None:
    user, good, bad = ({"role": r, "content": c} for r, c in (("user", "q"), ("assistant", "a"), ("assistant", "b")))
    found = row_texts({"chosen": [user, good], "rejected": [user, bad]})
    assert (found.prompt, found.pair, found.faults) == ("q", ("a", "b"), ())
    found = row_texts({"chosen": [good], "rejected": [bad]})
    assert found.faults == ("'chosen' and 'rejected' share no message",)
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    assert row_texts({"prompt": [user, call], "chosen": [good], "rejected": [bad]}).prompt == "q\n"
    parts = [{"role": "user", "content": [{"type": "text", "text": "seen"}]}]
    assert row_texts({"prompt": parts, "completion": "a"}).all == (("prompt", "seen"), ("response", "a"))
    assert row_texts({"prompt": "p", "responses": ["a", None]}).faults == ("'responses' is null",)


def test_mojibake_is_told_from_accents() -> None:
    for text in ("é", "für", "naïve", "l’été", "“so”", "½", "中文", "Привет", "😀", "π ≤ 4"):
        damaged = text.encode().decode("cp1252", "replace")
        if "\ufffd" not in damaged:
            assert mojibake(damaged), text
        assert mojibake(text) is None
    assert mojibake("voilà\u00a0» et Ça") is None


def test_scripts_are_told_by_most_letters() -> None:
    assert script("twelve letters here") == "Latin"
    assert script("これは日本語の文章です。") == "Han or kana"
    assert script("12 + 3 = 15") is None
    assert script("abcdefgh абвгдежз") is None


def test_similarity_is_that_of_edit_distance_and_bounded_for_long_texts() -> None:
    assert at_least_similar("a" * 100, "a" * 99 + "b", 0.99)
    assert not at_least_similar("a" * 100, "a" * 98 + "bb", 0.99)
    assert at_least_similar("", "", 1.0)
    long = "ab" * 5_000_000
    assert at_least_similar(long, f"{long[:5_000_000]}x{long[5_000_000:]}", 0.98)
    assert not at_least_similar(long, "ba" * 4_000_000 + "c" * 2_000_000, 0.98)


# ---------------------------------------------------------------------------------------------- lengths and cues


def test_the_effect_of_length_is_a_mean_over_a_spread_in_words() -> None:
    gap = LengthGap()
    for chosen, rejected in ((12, 10), (14, 10), (16, 10)):
        gap.add("x" * chosen, "x" * rejected)
    assert gap.effect == pytest.approx(2.0)  # gaps 2, 4, 6: mean 4, standard deviation 2
    assert gap.sentence() == (
        "Chosen is longer by 4.0 characters on average, and in 100 % of pairs: a large effect (d = 2.00). "
        "A model can win by length alone."
    )
    assert gap.report()["chosen_mean"] == pytest.approx(14.0)
    even = LengthGap()
    for chosen, rejected in ((10, 12), (12, 10)):
        even.add("x" * chosen, "x" * rejected)
    assert even.sentence().startswith("Length tells next to nothing")
    constant = LengthGap()
    for _ in range(2):
        constant.add("xx", "x")
    assert constant.effect == float("inf")
    assert constant.report()["effect_size"] is None


def test_the_solver_solves() -> None:
    rng = random.Random(0)
    factor = [[rng.gauss(0, 1) for _ in range(6)] for _ in range(6)]
    matrix = [[sum(a * b for a, b in zip(x, y, strict=True)) + (x is y) for y in factor] for x in factor]
    wanted = [rng.gauss(0, 1) for _ in range(6)]
    right = [sum(a * b for a, b in zip(line, wanted, strict=True)) for line in matrix]
    assert solve(matrix, right) == pytest.approx(wanted, abs=1e-9)


def test_the_fit_is_where_the_gradient_vanishes() -> None:
    import math

    rng = random.Random(1)
    rows = [[(at, rng.gauss(0.2 * at, 1)) for at in range(3)] for _ in range(200)]
    weights = fit(rows, 3)
    gradient = [-weight for weight in weights]
    for line in rows:
        away = 1 / (1 + math.exp(sum(weights[at] * value for at, value in line)))
        for at, value in line:
            gradient[at] += away * value
    assert gradient == pytest.approx([0.0] * 3, abs=1e-6)


def pairs(count: int, cue: float, seed: int = 0) -> tuple[list[list[tuple[int, float]]], list[int]]:
    """Pairs of random words; with probability `cue` chosen has bold words."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        texts = [
            " ".join(rng.choices(["alpha", "beta", "gamma", "delta", "12", "7.5", "10", ":"], k=rng.randint(15, 25)))
            for _ in "ab"
        ]
        if rng.random() < cue:
            texts[0] += " **so** it is"
        found.append(difference(*texts))
    return found, [number % FOLDS for number in range(count)]


def test_a_planted_cue_is_found_and_named() -> None:
    report = find_cues(*pairs(400, 0.6))
    assert report.accuracy > 0.7
    assert report.exceeds(0.65)
    assert report.cues[0].name == "bold or italic"
    assert (report.cues[0].more_in, report.cues[0].accuracy) == ("chosen", pytest.approx(0.8, abs=0.03))
    assert "Strongest: bold or italic (more in chosen), alone" in report.sentence(0.65)


def test_without_a_cue_the_classifier_is_at_chance() -> None:
    report = find_cues(*pairs(1000, 0.0))
    assert abs(report.accuracy - 0.5) < 0.05
    assert not report.exceeds(0.65)
    assert report.sentence(0.65).startswith("No format cue")


def test_few_pairs_are_no_evidence() -> None:
    report = find_cues(*pairs(6, 1.0))
    assert not report.exceeds(0.65)
    assert report.sentence(0.65) == "6 pairs are too few to look for format cues."


def test_exchanging_the_sides_changes_nothing_but_the_direction() -> None:
    found, folds = pairs(300, 0.5)
    mirrored = [[(at, -value) for at, value in line] for line in found]
    one, other = find_cues(found, folds), find_cues(mirrored, folds)
    assert one.accuracy == pytest.approx(other.accuracy)
    assert one.cues[0].name == other.cues[0].name
    assert {one.cues[0].more_in, other.cues[0].more_in} == {"chosen", "rejected"}


@pytest.mark.parametrize(
    ("feature", "text"),
    [
        ("multiplication signs", "3 * 4"),
        ("division signs", "3 / 4"),
        ("minus signs", "7 - 4"),
        ("negative numbers", "x = -4"),
        ("numbers with decimals", "1.5"),
        ("numbers with thousands commas", "1,500"),
        ("repeated numbers", "12 and 12"),
        ("list items", "- one"),
        ("headings", "## Title"),
        ("code", "`x`"),
        ("LaTeX commands", "\\frac"),
        ("a box", "\\boxed{3}"),
        ("a statement of the final answer", "#### 3"),
        ("white space at the beginning", " x"),
        ("characters outside ASCII", "é"),
        ("words of error", "a mistake"),
        ("double spaces", "a  b"),
        ("empty lines", "a\n\nb"),
    ],
)
def test_every_cue_is_seen_where_it_is(feature: str, text: str) -> None:
    at = FEATURES.index(feature)
    assert surface(text)[at] > 0
    assert surface("plain words")[at] == 0


def test_features_have_names_and_hostile_texts_are_bounded() -> None:
    assert len(set(FEATURES)) == len(FEATURES) == len(surface("x"))
    for piece in ("\n", " ", "* ", "**a", "1,1", "__", "#", "Ã", "<|", "a", "9"):
        assert len(surface(piece * 3_000_000)) == len(FEATURES)


# -------------------------------------------------------------------------------------------------- the commands


def lint(path: Path, capsys: Captured, *options: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["lint", str(path), "--json", *options])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    records = [
        row(id="good"),
        row(id="again"),
        row("He has 17 pens.", "He has 16 pens.", id="contrary"),
        row("x", "x", id="same", prompt="q"),
        row("x\ufffd", "yy", id="broken", prompt="r"),
        row(id="near", prompt=PROMPT.replace("Tom", "Tim")),
    ]
    write_records(path, records)
    return path


def test_lint_counts_names_rows_and_changes_nothing(source: Path, capsys: Captured) -> None:
    before = source.read_bytes()
    code, report = lint(source, capsys)
    assert code == 0
    found = {name: [entry["id"] for entry in finding["rows"]] for name, finding in report["findings"].items()}
    assert found == {
        "identical": ["same"],
        "replacement_character": ["broken"],
        "duplicate": ["again"],
        "contradiction": ["contrary"],
        "near_duplicate_prompt": ["near"],
    }
    assert report["rows"] == 6
    assert report["prompts"] == 4
    assert report["findings"]["duplicate"]["rows"][0]["detail"] == "the same as line 1"
    assert source.read_bytes() == before
    assert list(source.parent.iterdir()) == [source]
    assert main(["lint", str(source)]) == 0
    text = capsys.readouterr().out
    assert "6 rows, 4 different prompts." in text
    assert "again (line 2): the same as line 1" in text


def test_lint_fails_on_what_it_is_told_to(source: Path, capsys: Captured) -> None:
    assert lint(source, capsys, "--fail-on", "duplicate")[0] == 1
    assert lint(source, capsys, "--fail-on", "mojibake")[0] == 0
    code, report = lint(source, capsys, "--fail-on", "any")
    assert code == 1
    assert "identical" in report["failed"]
    assert main(["lint", str(source), "--fail-on", "typo"]) == 2
    assert "--fail-on: there is no finding 'typo'. Findings: unreadable, empty" in capsys.readouterr().err


def test_lint_compares_with_other_splits_and_test_sets(source: Path, capsys: Captured) -> None:
    other = source.with_name("heldout.jsonl")
    write_records(other, [{"prompt": "q"}, {"question": f"Listen. {PROMPT}"}])
    _, report = lint(source, capsys, "--across", str(other), "--against", str(other), "--ids", "1")
    found = {name: (finding["count"], finding["rows"][0]["id"]) for name, finding in report["findings"].items()}
    assert found["prompt_in_other_file"] == (1, "same")
    assert found["contaminated"] == (5, "good")
    assert len(report["findings"]["contaminated"]["rows"]) == 1
    assert main(["lint", str(source), "--across", "nowhere.jsonl"]) == 2
    assert "nowhere.jsonl: there is no such file." in capsys.readouterr().err


def test_lint_reports_a_cue_of_a_whole_file(tmp_path: Path, capsys: Captured) -> None:
    rng = random.Random(3)
    words = ["alpha", "beta", "gamma", "delta", "epsilon"]
    records = [
        row(" ".join(rng.choices(words, k=12)) + ".", " ".join(rng.choices(words, k=12)), f"question {number}")
        for number in range(200)
    ]
    write_records(tmp_path / "in.jsonl", records)
    code, report = lint(tmp_path / "in.jsonl", capsys, "--fail-on", "format_cue", "--sample", "100")
    assert code == 1
    assert report["cues"]["pairs"] == 100
    assert report["cues"]["accuracy"] > 0.95
    assert {"sentences", "a full stop at the end"} & {cue["cue"] for cue in report["cues"]["strongest"][:3]}
    assert lint(tmp_path / "in.jsonl", capsys, "--sample", "100")[1] == {**report, "failed": []}


def test_filter_leaves_out_what_lint_finds(source: Path, capsys: Captured) -> None:
    out = source.with_name("out.jsonl")
    assert main(["filter", str(source), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reason"] == {"identical": 1, "replacement_character": 1}
    kept = list(read_records(out))
    assert kept == [r for r in read_records(source) if r["id"] not in ("same", "broken")]
    for name in ("out.jsonl", "out.jsonl.rejects.jsonl", "out.jsonl.manifest.json"):
        assert source.with_name(name).exists()


def test_filter_takes_rules_limits_and_a_test_set(source: Path, capsys: Captured) -> None:
    out, other = source.with_name("out.jsonl"), source.with_name("test.jsonl")
    write_records(other, [{"prompt": "q"}])
    arguments = ["filter", str(source), "--out", str(out), "--json", "--overwrite"]
    assert main([*arguments, "--rule", "length_ratio", "--max-length-ratio", "1.4", "--against", str(other)]) == 0
    found = json.loads(capsys.readouterr().out)["reason"]
    assert found == {"length_ratio": 3, "contaminated": 1}
    assert main([*arguments, "--without", "identical", "--without", "replacement_character"]) == 0
    assert json.loads(capsys.readouterr().out)["rejected"] == 0
    assert main([*arguments, "--rule", "typo"]) == 2
    assert "there is no rule 'typo'. Rules: unreadable, empty" in capsys.readouterr().err


BROKEN = '{"prompt": "p", "chosen": "a", "rejected": "b"}\n{"prompt": \n[1]\n'


def test_lint_counts_records_that_cannot_be_read(tmp_path: Path, capsys: Captured) -> None:
    good, broken = tmp_path / "good.jsonl", tmp_path / "broken.jsonl"
    write_records(good, [row(prompt="q")])
    broken.write_text(BROKEN)
    code, report = lint(broken, capsys, "--fail-on", "any")
    finding = report["findings"]["unreadable_record"]
    assert (code, report["rows"], report["unreadable"], finding["count"]) == (1, 1, 2, 2)
    assert report["failed"][0] == "unreadable_record"
    assert [entry["line"] for entry in finding["rows"]] == [2, 3]
    assert "not valid JSON" in finding["rows"][0]["detail"]
    for option in ("--across", "--against"):
        code, report = lint(good, capsys, option, str(broken), "--fail-on", "unreadable_record")
        assert (code, report["unreadable"]) == (1, 2)
        assert report["findings"]["unreadable_record"]["rows"][0]["file"] == str(broken)
    assert main(["lint", str(broken)]) == 0
    text = capsys.readouterr().out
    assert "2 records could not be read" in text
    assert f"{broken} (line 3): expected one JSON object a line; got list." in text
    assert main(["stats", str(broken), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unreadable"] == 2


def test_files_of_which_nothing_can_be_read_are_refused(tmp_path: Path, capsys: Captured) -> None:
    good, broken, empty = (tmp_path / f"{name}.jsonl" for name in ("good", "broken", "empty"))
    write_records(good, [row(prompt="q")])
    broken.write_text("x\ny\n")
    empty.write_text("")
    out = str(tmp_path / "out.jsonl")
    for arguments in (
        ["lint", str(broken)],
        ["stats", str(broken)],
        ["lint", str(good), "--across", str(broken)],
        ["lint", str(good), "--against", str(broken)],
        ["filter", str(good), "--out", out, "--against", str(broken)],
        ["dedupe", str(good), "--out", out, "--across", str(broken)],
    ):
        assert main(arguments) == 2
        assert "broken.jsonl: none of its 2 records can be read. Line 1: not valid JSON" in capsys.readouterr().err
    assert main(["lint", str(good), "--against", str(empty)]) == 2
    assert "empty.jsonl: has no records to compare with." in capsys.readouterr().err
