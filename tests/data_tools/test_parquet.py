"""Parquet columns of types that JSON has none for: converted where their meaning is plain, named where not."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from data_tools.cli import main
from data_tools.reading import Unreadable, scan_records
from data_tools.records import read_records, write_records

PLAIN = {"id": ["a", "b"], "prompt": ["What is 2 + 3?"] * 2, "solution": ["He has 2 + 3 = 5 apples.\n#### 5"] * 2}


def table(path: Path, **columns: Any) -> Path:
    parquet.write_table(pa.table({**PLAIN, **columns}), path)
    return path


@pytest.mark.parametrize(
    ("column", "read"),
    [
        (pa.array([datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC), None]), ["2024-05-06T07:08:09+00:00", None]),
        (pa.array([1_000_000_001, 0], pa.timestamp("ns")), ["1970-01-01T00:00:01.000000001", "1970-01-01T00:00:00"]),
        (pa.array([date(2024, 5, 6), None]), ["2024-05-06", None]),
        (pa.array([time(7, 8), None]), ["07:08:00", None]),
        (pa.array([b"caf\xc3\xa9", b""]), ["café", ""]),
        (pa.array([Decimal("1.50"), Decimal("7.00")]), [1.5, 7]),
        (pa.array([Decimal("0.1234567890123456789"), None]), ["0.1234567890123456789", None]),
        (pa.array([1.5, float("nan")]), [1.5, None]),
        (pa.array([[0.5, float("nan")], None]), [[0.5, None], None]),
        (pa.array([{"at": date(2024, 5, 6), "by": "me"}, None]), [{"at": "2024-05-06", "by": "me"}, None]),
        (pa.array([[("k", 1.0)], []], pa.map_(pa.string(), pa.float64())), [{"k": 1.0}, {}]),
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
        (pa.array([1, None]), [1, None]),
    ],
)
def test_a_column_is_read_as_json_has_it(tmp_path: Path, column: pa.Array, read: list[Any]) -> None:
    source = table(tmp_path / "in.parquet", more=column)
    records = list(read_records(source))
    assert [record["more"] for record in records] == read
    assert [type(record["more"]) for record in records] == [type(value) for value in read]
    write_records(tmp_path / "again.jsonl", records)
    assert list(read_records(tmp_path / "again.jsonl")) == records


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pa.array([timedelta(seconds=3), None]), "column 'more' has a value of type timedelta, which JSON cannot"),
        (pa.array([b"\xff\xfe", None]), "column 'more' has bytes that are no UTF-8 text"),
        (pa.array([float("inf"), None]), "column 'more' has an infinite number"),
    ],
)
def test_a_value_that_json_has_not_rejects_its_row_alone(tmp_path: Path, column: pa.Array, says: str) -> None:
    source, out = table(tmp_path / "in.parquet", more=column), tmp_path / "out.jsonl"
    first, second = scan_records(source)
    assert isinstance(first[1], Unreadable)
    assert second == (2, {**{name: values[1] for name, values in PLAIN.items()}, "more": None})
    assert main(["dedupe", str(source), "--out", str(out)]) == 0
    (entry,) = read_records(tmp_path / "out.jsonl.rejects.jsonl")
    assert (entry["line"], entry["reason"]) == (1, "not_json")
    assert says in entry["detail"]


def test_a_nul_character_rejects_its_row_as_in_json_lines(tmp_path: Path) -> None:
    source = table(tmp_path / "in.parquet", more=[[{"role": "user", "content": "a\0b"}], None])
    assert [getattr(item, "reason", None) for _, item in scan_records(source)] == ["nul_character", None]


def test_two_columns_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.parquet"
    parquet.write_table(pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["prompt", "prompt"]), source)
    assert main(["stats", str(source)]) == 2
    assert "has two columns of the name 'prompt'" in capsys.readouterr().err


def test_a_number_that_no_column_holds_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"prompt": "a", "chosen": "b", "rejected": "c", "large": 2**70}) + "\n")
    assert main(["dedupe", str(source), "--out", str(tmp_path / "out.parquet")]) == 2
    assert "do not fit into one table" in capsys.readouterr().err
