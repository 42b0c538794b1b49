"""Records out of files one by one, in bounded memory: JSON lines and Parquet. What cannot be read is said."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from data_tools.errors import DataToolsError, RecordError

Record = dict[str, Any]

MAX_LINE = 32 * 2**20
"""Bytes. A longer line is no record but a broken file; it is skipped in pieces and never held."""

PIECE = 2**20

MAX_DEPTH = 100
"""Objects and lists within one another. What is nested deeper is read and written by a recursion that may end."""

MAX_DIGITS = 300
"""Of a whole number; with more it fits into no floating-point number."""


@dataclass(frozen=True)
class Unreadable:
    """A line that gives no record: a reason to count it under, and what is wrong."""

    reason: str
    message: str


@dataclass
class Missed:
    """How many records could not be read, and where the first ten of them stand."""

    count: int = 0
    first: list[tuple[str, int, str]] = field(default_factory=list)

    def add(self, file: str, line: int, message: str) -> None:
        """One more."""
        self.count += 1
        if len(self.first) < 10:
            self.first.append((file, line, message))

    def none_left(self, path: Path) -> str:
        """The sentence for a file of which nothing could be read."""
        return f"{path}: none of its {self.count} records can be read. Line {self.first[0][1]}: {self.first[0][2]}"


Item = tuple[int, Record | Unreadable]


def scan_records(path: Path, *, skip: int = 0) -> Iterator[Item]:
    """Every record of a file with the number of its line (JSON lines, from 1) or row (Parquet, from 1).

    Lines that are no records come as `Unreadable`; blank lines do not come at all. `skip` leaves the first items out
    without reading what is in them.

    Raises: `DataToolsError` if the file cannot be read at all.
    """
    if path.suffix == ".parquet":
        from data_tools.parquet import scan_parquet

        yield from scan_parquet(path, skip=skip)
        return
    try:
        with path.open("rb") as file:
            for number, line in _lines(file):
                if isinstance(line, Unreadable):
                    item: Record | Unreadable = line
                elif not line.strip():
                    continue
                elif skip > 0:
                    item = _SKIPPED
                else:
                    item = _parsed(line, first=number == 1)
                if skip > 0:
                    skip -= 1
                    continue
                yield number, item
    except OSError as error:
        raise DataToolsError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_numbered(path: str | Path) -> Iterator[tuple[int, Record]]:
    """The objects of a file, each with its line number (from 1) for error messages; blank lines are skipped.

    Raises: `DataToolsError` if the file cannot be read, or at the first line that is not UTF-8 or not one JSON object.
    """
    path = Path(path)
    for number, item in scan_records(path):
        if isinstance(item, Unreadable):
            raise RecordError(f"{path}:{number}: {item.message}", reason=item.reason)
        yield number, item


def read_records(path: str | Path) -> Iterator[Record]:
    """Like `read_numbered`, without the numbers."""
    for _, record in read_numbered(path):
        yield record


_SKIPPED = Unreadable("skipped", "")


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | Unreadable]]:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) <= MAX_LINE:
            yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(PIECE)
        yield number, Unreadable("too_long", f"the line is longer than {MAX_LINE // 2**20} MiB.")


def _parsed(line: bytes, *, first: bool) -> Record | Unreadable:
    try:
        record = _DECODER.decode(line.decode("utf-8-sig" if first else "utf-8"))
    except UnicodeDecodeError as error:
        return Unreadable("not_utf8", f"not UTF-8 text (byte {error.start + 1} of the line).")
    except json.JSONDecodeError as error:
        return Unreadable("not_json", f"not valid JSON: {error.msg} at column {error.colno}.")
    except _RepeatedKeyError as error:
        return Unreadable("repeated_key", f"not valid JSON: the key '{error}' stands twice in one object.")
    except RecursionError:
        return Unreadable("too_deep", "JSON that cannot be read: it is nested too deeply.")
    except ValueError as error:  # NaN, infinities, and numbers that come to them
        return Unreadable("not_json", f"JSON that cannot be read: {error}.")
    if not isinstance(record, dict):
        return Unreadable("not_an_object", f"expected one JSON object a line; got {type(record).__name__}.")
    return _damaged(line, record) or record


def _damaged(line: bytes, record: Record) -> Unreadable | None:
    """What JSON allows and records must not have; looked for only where the line has the characters for it."""
    if line.count(b"{") + line.count(b"[") > MAX_DEPTH and _is_deep(record):
        return Unreadable("too_deep", f"JSON that cannot be read: it is nested over {MAX_DEPTH} levels deep.")
    if b"\\u0000" in line and has_character(record, "\0"):
        return NUL
    if b"\\ud" in line or b"\\uD" in line:
        try:
            json.dumps(record, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            return Unreadable("lone_surrogate", "a text has half of a surrogate pair, which is no character.")
    return None


def _is_deep(record: Record) -> bool:
    level: list[Any] = [record]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for value in level
            for item in (value.values() if isinstance(value, dict) else value)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


NUL = Unreadable("nul_character", "a text has a NUL character.")


def has_character(value: Any, character: str) -> bool:
    """Whether a text somewhere in a value, or the name of a field, has a character."""
    if isinstance(value, str):
        return character in value
    if isinstance(value, dict):
        return any(has_character(key, character) or has_character(item, character) for key, item in value.items())
    return isinstance(value, list) and any(has_character(item, character) for item in value)


class _RepeatedKeyError(Exception):
    """A key that an object has twice; of its values one would be lost."""


def _object(pairs: list[tuple[str, Any]]) -> Record:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedKeyError(next(name for name in names if names.count(name) > 1))
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is too large for a number")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits; {MAX_DIGITS} are the most")
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_integer)
