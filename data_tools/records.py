"""Records as JSON lines: a file is either written whole or not at all, and errors name file and line."""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from data_tools.errors import DataToolsError, RecordError
from data_tools.reading import Record, Unreadable, read_numbered, read_records, scan_records

__all__ = [
    "DataToolsError",
    "Record",
    "RecordError",
    "Unreadable",
    "file_mode",
    "format_line",
    "read_numbered",
    "read_records",
    "record_id",
    "replacing",
    "scan_records",
    "text_field",
    "write_records",
]


def write_records(path: str | Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Write one JSON object a line and return their number.

    The lines go to a temporary file beside `path`, which takes its name only when all are written: readers never see
    half a file, and an error on the way leaves an existing file as it was.

    Raises: `DataToolsError` if a record cannot be expressed in JSON (NaN and infinities included) or the folder cannot
    be written.
    """
    path = Path(path)
    count = 0
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for count, record in enumerate(records, start=1):
            try:
                file.write(format_line(record))
            except RecordError as error:
                raise DataToolsError(f"{path}: record {count} {error}") from error
    return count


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when the block ends without an error.

    Raises: `DataToolsError` if the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
    except OSError as error:
        raise DataToolsError(f"{path}: cannot be written: {error.strerror or error}") from error
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(file_mode(path))
        temporary.replace(path)
    except OSError as error:
        raise DataToolsError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def format_line(record: Mapping[str, Any]) -> str:
    """A record as a line of JSON.

    Raises: `RecordError` for what JSON in UTF-8 cannot hold.
    """
    try:
        line = json.dumps(dict(record), ensure_ascii=False, allow_nan=False)
        line.encode("utf-8")  # a lone surrogate passes json.dumps
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"cannot be written as JSON: {error}.", reason="not_writable") from error
    return line + "\n"


def text_field(record: Mapping[str, Any], name: str, where: str) -> str:
    """The text in column `name`. Raises: `RecordError`, beginning with `where`, if it is missing or no text."""
    value = record.get(name)
    if isinstance(value, str):
        return value
    found = "is missing" if name not in record else f"must be text; got {type(value).__name__}"
    raise RecordError(
        f"{where}: column '{name}' {found}.", reason="missing_column" if name not in record else "no_text"
    )


def record_id(record: Mapping[str, Any]) -> str:
    """The record's `id` as text, or one made of its content, so that it is the same wherever the record turns up."""
    given = record.get("id")
    if isinstance(given, str | int | float) and not isinstance(given, bool) and given != "":
        return str(given)
    content = json.dumps({k: v for k, v in record.items() if k != "id"}, sort_keys=True, ensure_ascii=True)
    return "r-" + blake2b(content.encode(), digest_size=8).hexdigest()


def file_mode(path: Path) -> int:
    """Permissions for a finished file: those of the file it replaces, else what the umask leaves of rw-rw-rw-."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
