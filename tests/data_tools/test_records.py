from collections.abc import Iterator
from pathlib import Path

import pytest

from data_tools.records import DataToolsError, read_numbered, read_records, text_field, write_records


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    rows = [{"prompt": "naïve \u2028 line", "n": 1}, {"steps": [[0, 2]], "answer": None}]
    path = tmp_path / "new" / "rows.jsonl"
    assert write_records(path, rows) == 2
    assert list(read_records(path)) == rows
    assert path.read_bytes().count(b"\n") == 2


def test_no_rows_make_an_empty_file(tmp_path: Path) -> None:
    assert write_records(tmp_path / "rows.jsonl", []) == 0
    assert list(read_records(tmp_path / "rows.jsonl")) == []


def test_blank_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('\n{"a": 1}\n\r\n{"a": 2}')
    assert list(read_numbered(path)) == [(2, {"a": 1}), (4, {"a": 2})]


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n')
    assert list(read_records(path)) == [{"a": 1}]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"a": 1', "not valid JSON"),
        (b"[1]", "expected one JSON object a line; got list"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read"),
        (b"[" * 200_000, "cannot be read"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b"\n")
    with pytest.raises(DataToolsError, match=rf"rows\.jsonl:2: .*{message}"):
        list(read_records(path))


def test_a_missing_file_is_a_readable_error(tmp_path: Path) -> None:
    with pytest.raises(DataToolsError, match=r"rows\.jsonl: cannot be read"):
        list(read_records(tmp_path / "rows.jsonl"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), "\ud800"])
def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, value: object) -> None:
    path = tmp_path / "rows.jsonl"
    write_records(path, [{"a": 1}])
    with pytest.raises(DataToolsError, match="record 2"):
        write_records(path, [{"a": 2}, {"a": value}])
    assert list(read_records(path)) == [{"a": 1}]
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.jsonl"]


def test_an_error_in_the_producer_leaves_no_file(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, int]]:
        yield {"a": 1}
        raise RuntimeError("producer")

    with pytest.raises(RuntimeError, match="producer"):
        write_records(tmp_path / "rows.jsonl", rows())
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_place_is_a_readable_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataToolsError, match="cannot be written"):
        write_records(tmp_path / "file" / "rows.jsonl", [])
    with pytest.raises(DataToolsError, match="cannot be written"):
        write_records(tmp_path, [{"a": 1}])


def test_text_field_says_what_is_wrong() -> None:
    assert text_field({"prompt": "p"}, "prompt", "f:1") == "p"
    with pytest.raises(DataToolsError, match="f:1: column 'prompt' is missing"):
        text_field({}, "prompt", "f:1")
    with pytest.raises(DataToolsError, match="must be text; got int"):
        text_field({"prompt": 1}, "prompt", "f:1")
