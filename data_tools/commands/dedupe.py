"""`prefopt data dedupe`: every row once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from data_tools.command import Options, RunInfo, stream_command
from data_tools.duplicates import NearIndex, digest
from data_tools.duplicates.places import Places, Seen, own, place_of
from data_tools.others import readable
from data_tools.reading import Record
from data_tools.run import Output, Reject, Row, StreamFunction
from data_tools.texts import COLUMNS, row_texts


class DedupeOptions(Options):
    """What makes two rows the same."""

    on: Literal["row", "prompt", "response"] = Field(
        "row", description="compare prompt and responses, the prompt only, or the responses only"
    )
    near: float = Field(
        1.0, ge=0.5, le=1, description="Jaccard similarity from which rows are near duplicates; 1: only equal ones"
    )
    ignore_numbers: bool = Field(False, description="rows that differ in numbers can be near duplicates too")
    across: list[Path] = Field(
        default_factory=list, description="another file whose rows must not occur here; may be repeated"
    )


@stream_command(DedupeOptions, also=lambda options: options.across, reads=lambda options: COLUMNS)
def dedupe(options: DedupeOptions, run: RunInfo) -> StreamFunction:
    """Leave out rows that came before, in this file or in others; the first one stays.

    Equal means equal but for white space. Near duplicates share runs of three tokens: MinHash proposes them, their
    exact Jaccard similarity decides. Hashes lie in temporary files. With --shard each part is compared with itself.
    """

    def rows(records: Iterator[Row]) -> Iterator[Output]:
        known = _Known(options)
        for path in options.across:
            file = known.places.file(path)
            for line, record in readable(path):
                known.find_or_add(record, file, line)
        for row in records:
            found = known.find_or_add(row.record, 0, row.line)
            yield row.record if found is None else Reject(found[0], found[1], row.line, row.id)

    return rows


class _Known:
    """Everything that came before."""

    def __init__(self, options: DedupeOptions) -> None:
        self._on = options.on
        self.places, self._seen = Places(), Seen()
        self._near = NearIndex(options.near, same_numbers=not options.ignore_numbers) if options.near < 1 else None

    def find_or_add(self, record: Record, file: int, line: int) -> tuple[str, str] | None:
        """Why a row is a duplicate, reason and detail; None, and it is remembered, if it is new."""
        parts = _parts(record, self._on)
        if not any(parts):
            return None  # nothing to compare by
        place = place_of(file, line)
        before = self._seen.first(digest(*parts), place)
        if before is not None:
            return self._reason("duplicate", before), f"the same as {self.places.name(before)}"
        near = self._near.find_or_add("\n".join(parts), place) if self._near else None
        if near is not None:
            return self._reason("near_duplicate", near[0]), f"similarity {near[1]:.2f} to {self.places.name(near[0])}"
        return None

    def _reason(self, word: str, before: int) -> str:
        return word if own(before) else f"{word}_across_files"


def _parts(record: Record, on: str) -> list[str]:
    texts = row_texts(record)
    prompt = [] if on == "response" else [texts.prompt]
    sides = [] if on == "prompt" else [texts.prefix, *(text for _, text in texts.sides)]
    return [" ".join(text.split()) for text in (*prompt, *sides)]
