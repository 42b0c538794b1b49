"""JSON lines in and out: errors name file and line, and a file is either written whole or not at all."""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class DataToolsError(ValueError):
    """A mistake in the data or in the arguments that a user can mend."""


def read_records(path: str | Path) -> Iterator[Record]:
    """Yield the objects of a JSON-lines file one by one; blank lines are skipped.

    Raises: DataToolsError if the file cannot be read, or at the first line that is not UTF-8 or not one JSON object.
    """
    for _, record in read_numbered(path):
        yield record


def read_numbered(path: str | Path) -> Iterator[tuple[int, Record]]:
    """Like `read_records`, with each object's line number (from 1) for error messages."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _parse_line(line, path, number)
    except OSError as error:
        raise DataToolsError(f"{path}: cannot be read: {error.strerror or error}") from error


def write_records(path: str | Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Write one JSON object a line and return their number.

    The lines go to a temporary file beside `path`, which takes its name only when all are written: readers never see
    half a file, and an error on the way leaves an existing file as it was.

    Raises: DataToolsError if a record cannot be expressed in JSON (NaN and infinities included) or the folder cannot
    be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise DataToolsError(f"{path}: cannot be written: {error.strerror or error}") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            count = 0
            for count, record in enumerate(records, start=1):
                file.write(_format_line(record, path, count))
        temporary.chmod(_file_mode(path))
        temporary.replace(path)
    except OSError as error:
        raise DataToolsError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return count


def text_field(record: Mapping[str, Any], name: str, where: str) -> str:
    """The text in column `name`. Raises: DataToolsError, beginning with `where`, if it is missing or no text."""
    value = record.get(name)
    if isinstance(value, str):
        return value
    found = "is missing" if name not in record else f"must be text; got {type(value).__name__}"
    raise DataToolsError(f"{where}: column '{name}' {found}.")


def _parse_line(line: bytes, path: Path, number: int) -> Record:
    try:
        record = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        raise DataToolsError(f"{path}:{number}: not UTF-8 text (byte {error.start + 1} of the line).") from error
    except json.JSONDecodeError as error:
        raise DataToolsError(f"{path}:{number}: not valid JSON: {error.msg} at column {error.colno}.") from error
    except (RecursionError, ValueError) as error:  # nesting without end, integers of more than 4300 digits
        raise DataToolsError(f"{path}:{number}: JSON that cannot be read: {error}.") from error
    if not isinstance(record, dict):
        raise DataToolsError(f"{path}:{number}: expected one JSON object a line; got {type(record).__name__}.")
    return record


def _format_line(record: Mapping[str, Any], path: Path, number: int) -> str:
    try:
        line = json.dumps(dict(record), ensure_ascii=False, allow_nan=False)
        line.encode("utf-8")  # a lone surrogate passes json.dumps
    except (TypeError, ValueError, RecursionError) as error:
        raise DataToolsError(f"{path}: record {number} cannot be written as JSON: {error}.") from error
    return line + "\n"


def _file_mode(path: Path) -> int:
    """Permissions for the finished file: those of the file it replaces, else what the umask leaves of rw-rw-rw-."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
