"""Answers kept as they come, so that no request is paid for twice: an append-only file beside the output.

A line holds one request, its answer, and a key made of both the request and the model. A run that is killed at any
point loses the answers that had not arrived; the next run finds the others here, whatever its options are, as long as
it asks the same. Failures are not kept: they are tried again.
"""

import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from data_tools.duplicates import HashTable
from data_tools.errors import NOT_GENERATED, DataToolsError
from data_tools.generators.request import Answer, Generator, GenFailure, GenRequest, GenResult, request_key

log = logging.getLogger(__name__)


class Journal:
    """The file. Where its answers stand lies in another, temporary one: memory does not grow with them."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path, self._read_only = path, read_only
        self._places = HashTable()
        self._file: IO[bytes] | None = None
        if read_only and not path.exists():
            return
        try:
            if not read_only:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("rb" if read_only else "a+b")
        except OSError as error:
            raise DataToolsError(f"{path}: the journal cannot be opened: {error.strerror or error}") from error
        self._lock()
        self._read()

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: str) -> GenResult | None:
        """The answer kept under a key."""
        place = self._places.get(_number(key))
        if place is None or self._file is None:
            return None
        self._file.seek(place)
        entry = _entry(self._file.readline())
        return None if entry is None or entry["key"] != key else GenResult(entry["text"], entry["finish_reason"])

    def has(self, key: str) -> bool:
        """Whether there is an answer under a key."""
        return self._places.get(_number(key)) is not None

    def add(self, entries: Sequence[tuple[str, GenRequest, GenResult]]) -> None:
        """Keep answers; when this returns they are on the disk."""
        if self._file is None or not entries:
            return
        place = self._file.seek(0, os.SEEK_END)
        for key, request, result in entries:
            content = {"key": key, "request": request.content(), "text": result.text}
            line = json.dumps({**content, "finish_reason": result.finish_reason}).encode() + b"\n"
            self._file.write(line)
            self._places.setdefault(_number(key), place)
            place += len(line)
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _lock(self) -> None:
        if self._read_only or self._file is None:
            return
        try:
            import fcntl
        except ImportError:  # a system without locks
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise DataToolsError(f"{self.path}: another run is writing this journal.") from error

    def _read(self) -> None:
        """Find the entries; cut off a last line that a crash left half written."""
        assert self._file is not None
        self._file.seek(0)
        place = broken = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                if not self._read_only:
                    self._file.truncate(place)
                break
            entry = _entry(line)
            if entry is None:
                broken += 1
            else:
                self._places.setdefault(_number(entry["key"]), place)
            place += len(line)
        if broken:
            log.warning("%s: %d lines are no answers and are passed over", self.path, broken)


class Journaled:
    """A generator that asks only what its journal does not have. Without a generator, nothing is asked at all.

    `unanswered` counts, by reason, the requests that had no answer and may have one another time.
    """

    def __init__(
        self,
        journal: Journal,
        generator: Generator | None,
        identity: Mapping[str, Any],
        unanswered: Counter[str] | None = None,
    ) -> None:
        self.journal, self._generator, self._identity = journal, generator, identity
        self.asked = 0
        self.unanswered: Counter[str] = Counter() if unanswered is None else unanswered

    @property
    def identity(self) -> Mapping[str, Any]:
        """That of the generator behind it."""
        return self._identity

    @property
    def together(self) -> int:
        """Nothing depends on what is asked together: see `answers`."""
        return 1

    def answers(self, requests: Sequence[GenRequest]) -> Iterator[tuple[int, Answer]]:
        """Answers from the journal and, for the rest, from the generator.

        Where answers depend on what is computed together, requests are asked in fixed groups, whole or not at all:
        a run that goes on after a kill then computes what the undisturbed run would have.
        """
        keys = [request_key(self._identity, request) for request in requests]
        same: dict[str, list[int]] = {}
        for place, key in enumerate(keys):
            same.setdefault(key, []).append(place)
        unique = list(same)
        size = self._generator.together if self._generator is not None else 1
        groups = [unique[start : start + size] for start in range(0, len(unique), size)]
        wanted = [key for group in groups if not all(map(self.journal.has, group)) for key in group]
        for key, answer in self._ask({key: requests[same[key][0]] for key in wanted}):
            yield from ((place, answer) for place in same[key])
        for key in same.keys() - set(wanted):
            kept = self.journal.get(key)
            if kept is not None:
                yield from ((place, kept) for place in same[key])

    def _ask(self, wanted: Mapping[str, GenRequest]) -> Iterator[tuple[str, Answer]]:
        """Ask, and keep what comes before it is given out."""
        keys = list(wanted)
        waiting: list[tuple[str, GenRequest, GenResult]] = []
        most = 1 if self._generator is None or self._generator.together == 1 else 64  # cheap answers: fewer writes
        try:
            for place, answer in self._new(list(wanted.values())):
                key = keys[place]
                kept = self.journal.get(key)
                if kept is None and isinstance(answer, GenResult):
                    waiting.append((key, wanted[key], answer))
                elif kept is None and isinstance(answer, GenFailure) and answer.passes:
                    self.unanswered[answer.reason] += 1
                if len(waiting) >= most:
                    self.journal.add(waiting)
                    waiting.clear()
                yield key, kept or answer
        finally:
            self.journal.add(waiting)

    def _new(self, requests: Sequence[GenRequest]) -> Iterator[tuple[int, Answer]]:
        if self._generator is None:
            failure = GenFailure(NOT_GENERATED, "a dry run asks no model; the journal has no answer")
            yield from ((place, failure) for place in range(len(requests)))
            return
        self.asked += len(requests)
        yield from self._generator.answers(requests)


def _number(key: str) -> int:
    return int(key[:15], 16)


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
        usable = all(isinstance(entry[name], str) for name in ("key", "text", "finish_reason"))
        int(entry["key"][:15], 16)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return entry if usable else None
