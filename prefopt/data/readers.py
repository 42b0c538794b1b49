"""Records out of text files one by one: JSON lines, JSON, CSV. Every mistake is told with file and line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefopt.errors import DataError

Record = dict[str, Any]
Numbered = tuple[int, Record]

TEXT_FORMATS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")


def read_numbered(path: Path) -> Iterator[Numbered]:
    """The records of a file, each with the number of its line (from 1; of a JSON list, of its place in the list).

    Raises: `DataError` for a file that cannot be read, is not UTF-8, or is not what its name says.
    """
    try:
        if path.suffix in (".csv", ".tsv"):
            yield from _csv(path, "\t" if path.suffix == ".tsv" else ",")
        elif path.suffix == ".json" and _starts_with(path, b"["):
            yield from _json_list(path)
        else:
            yield from _json_lines(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}.") from None


def _json_lines(path: Path) -> Iterator[Numbered]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield (
                    number,
                    _record(_parsed(_decoded(line, path, number), f"{path}:{number}", path), f"{path}:{number}"),
                )


def _json_list(path: Path) -> Iterator[Numbered]:
    items = _parsed(_decoded(path.read_bytes(), path, None), str(path), path)
    for number, item in enumerate(items, start=1):
        yield number, _record(item, f"{path}: item {number}")


def _csv(path: Path, delimiter: str) -> Iterator[Numbered]:
    with path.open("rb") as file:
        lines = (_decoded(line, path, number) for number, line in enumerate(file, start=1))
        reader = csv.DictReader(lines, delimiter=delimiter, strict=True)
        csv.field_size_limit(2**31 - 1)
        try:
            if not reader.fieldnames or len(set(reader.fieldnames)) < len(reader.fieldnames):
                raise DataError(f"{path}:1: the first line must name the columns, each once; got {reader.fieldnames}.")
            for row in reader:
                if None in row or None in row.values():
                    raise DataError(f"{path}:{reader.line_num}: the row does not have {len(reader.fieldnames)} cells.")
                yield reader.line_num, {name: _cell(value) for name, value in row.items()}
        except csv.Error as error:
            raise DataError(f"{path}:{reader.reader.line_num}: not valid CSV: {error}.") from None


def _cell(value: str) -> Any:
    """CSV knows only text; a cell that is a JSON list of messages or of texts is one."""
    if value[:1] != "[":
        return value
    try:
        found = json.loads(value)
    except ValueError:
        return value
    messages = all(isinstance(item, dict) and "role" in item for item in found)
    return found if found and (messages or all(isinstance(item, str) for item in found)) else value


def _decoded(line: bytes, path: Path, number: int | None) -> str:
    try:
        return line.decode("utf-8-sig" if number in (None, 1) else "utf-8")
    except UnicodeDecodeError as error:
        at = line.count(b"\n", 0, error.start) + 1 if number is None else number
        raise DataError(
            f"{path}:{at}: not UTF-8 text (byte {line[error.start]:#04x}). Save the file as UTF-8, or convert it, "
            "for instance with `iconv -f latin1 -t utf-8`."
        ) from None


class _RepeatedKeyError(ValueError):
    """A key that an object has twice; of its values one would be lost."""


def _object(pairs: list[tuple[str, Any]]) -> Record:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedKeyError(next(name for name in names if names.count(name) > 1))
    return found


def _parsed(text: str, where: str, path: Path) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}" if where == str(path) else where
        raise DataError(f"{place}: not valid JSON: {error.msg} at column {error.colno}.") from None
    except _RepeatedKeyError as error:
        raise DataError(f"{where}: not valid JSON: the key '{error}' stands twice in one object.") from None
    except (RecursionError, ValueError) as error:  # nesting without end, numbers of more than 4300 digits
        raise DataError(f"{where}: JSON that cannot be read: {error}.") from None


def _record(value: Any, where: str) -> Record:
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object; got {type(value).__name__}.")
    return value


def _starts_with(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    return start.startswith(mark)


__all__ = ["TEXT_FORMATS", "Numbered", "Record", "read_numbered"]
