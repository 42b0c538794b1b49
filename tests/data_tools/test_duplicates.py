"""Equal and nearly equal texts, found without comparing all with all."""

from __future__ import annotations

import random
import sqlite3
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from data_tools.cli import main
from data_tools.duplicates import HashTable, NearIndex, NgramSet, digest, jaccard, shingles, signature, tokens
from data_tools.records import read_records, write_records

WORDS = ["".join(letters) for letters in product("bcdfgklmnprstvz", "aeiou", "bdgklmnrst", "aeiou")]
"""Words without digits: texts with other numbers are other problems."""


def text_of(rng: random.Random, length: int = 80) -> str:
    return " ".join(rng.choices(WORDS, k=length))


def test_the_table_is_a_map() -> None:
    rng = random.Random(0)
    table, model = HashTable(), dict[int, int]()
    for step in range(20_000):
        key = rng.choice([0, 1, 2**63, 2**64 - 1, rng.getrandbits(64), rng.randrange(5000) << 40])
        assert table.setdefault(key, step << 40) == model.setdefault(key, step << 40)
        if step % 3 == 0:
            assert table.get(key ^ 12345 << 20) == model.get(key ^ 12345 << 20)
    assert len(table) == len(model)
    unknown = [key for key in (rng.getrandbits(64) for _ in range(2000)) if key not in model]
    assert table.get_all([*model, *unknown]) == model
    table.add_all([*list(model)[:3], *unknown], 7)
    assert table.get_all([*model, *unknown]) == model | dict.fromkeys(unknown, 7)


def test_tokens_leave_case_and_punctuation_out_and_keep_arithmetic() -> None:
    assert tokens("He said: 'Go!'  12 + 3,5 = X.") == ["he", "said", "go", "12", "+", "3", "5", "=", "x"]
    assert tokens("你好 world") == ["你", "好", "world"]
    assert tokens("Ｆｕｌｌ") == tokens("full")
    assert shingles([], 3) == set()
    assert len(shingles(["a", "b"], 3)) == 1


def test_bins_agree_as_often_as_the_similarity_says() -> None:
    rng = random.Random(1)
    for wanted in (0.3, 0.6, 0.9):
        shares, exact = [], []
        for _ in range(60):
            shared = {rng.getrandbits(32) for _ in range(400)}
            rest = round(400 * (1 - wanted) / (2 * wanted))
            a, b = (shared | {rng.getrandbits(32) for _ in range(rest)} for _ in range(2))
            pairs = list(zip(signature(a), signature(b), strict=True))
            shares.append(sum(x == y for x, y in pairs) / len(pairs))
            exact.append(jaccard(a, b))
        assert sum(shares) / 60 == pytest.approx(sum(exact) / 60, abs=0.03)


def test_near_duplicates_are_found_and_others_are_not() -> None:
    rng = random.Random(2)
    texts = [text_of(rng) for _ in range(300)]
    found = 0
    index = NearIndex(0.8)
    assert all(index.find_or_add(text, place) is None for place, text in enumerate(texts))
    for place, text in enumerate(texts):
        words = text.split()
        words[rng.randrange(len(words))] = "changed"
        near = index.find_or_add(" ".join(words), 999)
        assert near is not None
        assert (near[0], 0.8 <= near[1] < 1) == (place, True)
        found += 1
    assert all(index.find_or_add(text_of(rng), 0) is None for _ in range(100))
    assert found == 300


def test_other_numbers_make_another_problem_unless_told_otherwise() -> None:
    rng = random.Random(3)
    text = text_of(rng)
    for same_numbers in (True, False):
        index = NearIndex(0.8, same_numbers=same_numbers)
        assert index.find_or_add(f"{text} has 12 apples", 0) is None
        assert (index.find_or_add(f"{text} has 13 apples", 1) is None) == same_numbers
        assert index.find_or_add(f"{text} has 12 Apples!", 2) == (0, 1.0)


def test_texts_of_one_template_cost_no_more_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every new text is compared with one earlier text for each band at most, however many share its wording."""
    compared = 0
    original = jaccard

    def counted(a: set[int], b: set[int]) -> float:
        nonlocal compared
        compared += 1
        return original(a, b)

    monkeypatch.setattr("data_tools.duplicates.near.jaccard", counted)
    rng = random.Random(4)
    frame = text_of(rng, 40)
    index = NearIndex(0.95, same_numbers=False)
    for place in range(400):
        index.find_or_add(f"{frame} {text_of(rng, 6)}", place)
    assert compared <= 16 * 400


def test_the_share_of_known_runs_is_counted() -> None:
    known = NgramSet(4, ["a b c d e f g h", "x y"])
    assert known.share("A b c d e f g h!") == 1.0
    assert known.share("a b c d q r s t u") == pytest.approx(1 / 6)
    assert known.share("x y") == 1.0
    assert known.share("x z") == 0.0
    assert known.share("") == 0.0


def test_a_digest_tells_where_one_text_ends() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("a") == digest("a")


# ------------------------------------------------------------------------------------------------------ the command


def dedupe(folder: Path, rows: list[dict[str, Any]], *options: str) -> tuple[list[str], dict[str, tuple[str, str]]]:
    source, out = folder / "in.jsonl", folder / "out.jsonl"
    write_records(source, rows)
    assert main(["dedupe", str(source), "--out", str(out), "--overwrite", "--json", *options]) == 0
    log = folder / "out.jsonl.rejects.jsonl"
    entries = list(read_records(log)) if log.exists() else []
    return [row["id"] for row in read_records(out)], {e["id"]: (e["reason"], e["detail"]) for e in entries}


def test_the_first_of_equal_rows_stays(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "prompt": "p", "chosen": "x y", "rejected": "z"},
        {"id": "b", "prompt": "p", "chosen": "x  y\n", "rejected": "z"},
        {"id": "c", "prompt": "p", "chosen": "z", "rejected": "x y"},
        {"id": "d", "prompt": "q", "chosen": "x y", "rejected": "z"},
    ]
    assert dedupe(tmp_path, rows) == (["a", "c", "d"], {"b": ("duplicate", "the same as line 1")})
    assert dedupe(tmp_path, rows, "--on", "prompt")[0] == ["a", "d"]
    assert dedupe(tmp_path, rows, "--on", "response")[0] == ["a", "c"]


def test_rows_of_another_file_do_not_stay(tmp_path: Path) -> None:
    rng = random.Random(5)
    texts = [text_of(rng) for _ in range(3)]
    other = tmp_path / "heldout.jsonl"
    write_records(other, [{"prompt": texts[0]}, {"prompt": f"{texts[1]} so"}])
    with other.open("a") as file:
        file.write("not json\n")
    rows = [{"id": str(n), "prompt": text, "completion": "c"} for n, text in enumerate(texts)]
    kept, log = dedupe(tmp_path, rows, "--on", "prompt", "--near", "0.8", "--across", str(other))
    assert kept == ["2"]
    assert log["0"] == ("duplicate_across_files", "the same as heldout.jsonl:1")
    assert log["1"][0] == "near_duplicate_across_files"
    assert log["1"][1].startswith("similarity 0.9")


def test_near_duplicates_go_only_when_asked_for(tmp_path: Path) -> None:
    text = text_of(random.Random(6))
    rows = [{"id": "a", "prompt": text, "completion": "c"}, {"id": "b", "prompt": f"{text} so", "completion": "c"}]
    assert dedupe(tmp_path, rows)[0] == ["a", "b"]
    kept, log = dedupe(tmp_path, rows, "--near", "0.8")
    assert (kept, log["b"][0]) == (["a"], "near_duplicate")


def test_a_full_disk_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(HashTable, "setdefault", full)
    write_records(tmp_path / "in.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}])
    assert main(["dedupe", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out.jsonl")]) == 1
    says = "error: a temporary file (in TMPDIR, else /var/tmp): database or disk is full. Set TMPDIR to a folder with"
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
