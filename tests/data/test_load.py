"""Sources: every format gives the same records, and what cannot be read is told with file and line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import datasets
import pytest
from datasets import Dataset, DatasetDict

from prefopt.data import Source, first_records, readers
from prefopt.data.load import batch_records, open_table
from prefopt.errors import ConfigError, DataError

RECORDS = [
    {"prompt": "a\n", "chosen": ' b "x"', "rejected": "ç,d"},
    {"prompt": "e", "chosen": " f", "rejected": " 天"},
]
UNEVEN = [
    {"prompt": "a", "chosen": "b", "rejected": ["c", "d"], "meta": {"x": 1}},
    {"prompt": [{"role": "user", "content": "a"}], "chosen": "b", "rejected": "c", "meta": [1, None]},
]


def written(path: Path, records: list[dict]) -> str:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
    return str(path)


def read(path: str, tmp_path: Path, **options) -> list[dict]:
    source = Source(path, **options)
    table = open_table(source, cache=tmp_path / "cache")
    return [source.renamed(record) for record in batch_records(table.dataset[:])]


def test_every_format_gives_the_same_records(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    (tmp_path / "list.json").write_text(json.dumps(RECORDS), encoding="utf-8")
    written(tmp_path / "lines.json", RECORDS)
    (tmp_path / "bom.jsonl").write_text("\ufeff" + (tmp_path / "lines.json").read_text("utf-8") + "\n \n", "utf-8")
    table = Dataset.from_list(RECORDS)
    table.to_parquet(tmp_path / "t.parquet")
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    table.save_to_disk(tmp_path / "saved")
    DatasetDict({"train": table, "test": table.select([0])}).save_to_disk(tmp_path / "splits")
    for name in ("list.json", "lines.json", "bom.jsonl", "t.parquet", "t.csv", "t.tsv", "saved"):
        assert read(str(tmp_path / name), tmp_path) == RECORDS, name
        assert first_records(Source(str(tmp_path / name)), 1) == RECORDS[:1]
    assert read(str(tmp_path / "splits"), tmp_path, split="test") == RECORDS[:1]
    with pytest.raises(DataError, match=r"has several splits.*train, test"):
        read(str(tmp_path / "splits"), tmp_path)
    with pytest.raises(DataError, match="has no split 'dev'"):
        read(str(tmp_path / "splits"), tmp_path, split="dev")


def test_records_need_not_be_alike(tmp_path: Path) -> None:
    assert read(written(tmp_path / "x.jsonl", UNEVEN), tmp_path) == UNEVEN


def test_messages_in_csv_cells_are_messages(tmp_path: Path) -> None:
    messages = json.dumps([{"role": "user", "content": "a"}]).replace('"', '""')
    (tmp_path / "x.csv").write_text(f'prompt,chosen,rejected\n"{messages}",[1] is a list,""\n', encoding="utf-8")
    assert read(str(tmp_path / "x.csv"), tmp_path) == [
        {"prompt": [{"role": "user", "content": "a"}], "chosen": "[1] is a list", "rejected": ""}
    ]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ('[" c"," d"]', [" c", " d"]),
        ('["c"]', ["c"]),
        ('["c", 1]', '["c", 1]'),
        ("[1, 2]", "[1, 2]"),
        ("[]", "[]"),
        ('["c" and so on]', '["c" and so on]'),
        ('["c", {"role": "user"}]', '["c", {"role": "user"}]'),
    ],
)
def test_texts_in_a_csv_cell_are_texts(tmp_path: Path, cell: str, value) -> None:
    quoted = cell.replace('"', '""')
    (tmp_path / "x.csv").write_text(f'prompt,chosen,rejected\na,b,"{quoted}"\n', encoding="utf-8")
    assert read(str(tmp_path / "x.csv"), tmp_path) == [{"prompt": "a", "chosen": "b", "rejected": value}]


def test_what_another_version_of_the_readers_stored_is_not_taken(tmp_path: Path, monkeypatch) -> None:
    source = Source(written(tmp_path / "a.jsonl", RECORDS))
    key = open_table(source, cache=tmp_path / "cache").key
    (tmp_path / "other.py").write_text("")
    monkeypatch.setattr(readers, "__file__", str(tmp_path / "other.py"))
    assert open_table(source, cache=tmp_path / "cache").key != key


def test_a_column_map_renames_and_takes_the_old_name_away(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", [{"question": "a", "response_j": "b", "chosen": "old", "response_k": "c"}])
    columns = {"prompt": "question", "chosen": "response_j", "rejected": "response_k"}
    assert read(path, tmp_path, columns=columns) == [{"prompt": "a", "chosen": "b", "rejected": "c"}]
    with pytest.raises(DataError, match=r"'chose' is not a column of a record\. Did you mean 'chosen'"):
        Source("x.jsonl", columns={"chose": "x"})


@pytest.mark.parametrize("weight", [0, -1.0, math.inf, -math.inf, math.nan])
def test_a_weight_is_a_number_above_0(weight: float) -> None:
    with pytest.raises(ConfigError, match=rf"x\.jsonl: weight must be above 0 and finite; got {weight}\."):
        Source("x.jsonl", weight=weight)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", b'{"a": 1}\n{"a": \n', r"x\.jsonl:2: not valid JSON: .* at column"),
        ("x.jsonl", b'{"a": 1}\n\n[1]\n', r"x\.jsonl:3: expected a JSON object; got list"),
        ("x.jsonl", b'{"a": 1}\n{"a": "\xe9"}\n', r"x\.jsonl:2: not UTF-8 text \(byte 0xe9\)"),
        ("x.json", b'[{"a": 1},\n{"b" 2}]', r"x\.json:2: not valid JSON"),
        ("x.json", b"[1]", r"x\.json: item 1: expected a JSON object"),
        ("x.json", b'[{"a":\n "\xff"}]', r"x\.json:2: not UTF-8"),
        ("x.csv", b"a,b\n1,2\n1,2,3\n", r"x\.csv:3: the row does not have 2 cells"),
        ("x.csv", b"a,a\n1,2\n", r"x\.csv:1: the first line must name the columns, each once"),
        ("x.csv", b'a,b\n1,"2\n', r"x\.csv:2: not valid CSV"),
        ("x.csv", b"a,b\n1,\xff\n", r"x\.csv:2: not UTF-8"),
        (
            "x.jsonl",
            b'{"a": 1}\n{"chosen": "b", "c": 1, "chosen": "d"}\n',
            r"x\.jsonl:2: not valid JSON: the key 'chosen' stands twice in one object",
        ),
        ("x.jsonl", b'{"a": [{"role": "user", "role": "system"}]}\n', r"x\.jsonl:1: .* the key 'role' stands twice"),
        ("x.json", b'[{"a": 1, "a": 1}]', r"x\.json: not valid JSON: the key 'a' stands twice"),
        ("x.jsonl", b"\n \n", r"x\.jsonl: has no records"),
        ("x.csv", b"a,b\n", r"x\.csv: has no records"),
        ("x.jsonl", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", r"x\.jsonl:1: JSON that cannot be read"),
        ("x.txt", b"hello", r"x\.txt: a file of this kind cannot be read\. It must end in \.jsonl"),
        ("x.parquet", b"no parquet", r"x\.parquet: cannot be loaded"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(
    tmp_path: Path, monkeypatch, name: str, content: bytes, message: str
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_table(Source(str(tmp_path / name)), cache=tmp_path / "cache")
    left = list((tmp_path / "cache").iterdir()) if (tmp_path / "cache").is_dir() else []
    assert left == []  # nothing is half-written


def test_a_missing_file_is_told_with_what_was_meant(tmp_path: Path) -> None:
    written(tmp_path / "pairs.jsonl", RECORDS)
    with pytest.raises(DataError, match=r"pair\.jsonl: does not exist\. Did you mean 'pairs\.jsonl'"):
        open_table(Source(str(tmp_path / "pair.jsonl")))
    with pytest.raises(DataError, match="neither does the folder"):
        open_table(Source(str(tmp_path / "no" / "pair.jsonl")))
    with pytest.raises(DataError, match="does not exist"):
        open_table(Source("tests/no-such-data"))  # reads like owner/name, but the folder is there


def test_the_first_records_are_read_without_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(RECORDS[0]) + "\n{broken\n", encoding="utf-8")
    assert first_records(Source(str(path)), 1) == RECORDS[:1]
    with pytest.raises(DataError, match=r"x\.jsonl:2"):
        first_records(Source(str(path)), 2)


def test_records_are_stored_once_per_content(tmp_path: Path) -> None:
    first = open_table(Source(written(tmp_path / "a.jsonl", RECORDS)), cache=tmp_path / "cache")
    again = open_table(Source(written(tmp_path / "b.jsonl", RECORDS)), cache=tmp_path / "cache")
    other = open_table(Source(written(tmp_path / "c.jsonl", RECORDS[:1])), cache=tmp_path / "cache")
    assert first.key == again.key != other.key
    assert len(list((tmp_path / "cache").iterdir())) == 2
