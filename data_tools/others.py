"""Files that are only compared with: other splits, test sets."""

from collections.abc import Iterator
from pathlib import Path

from data_tools.errors import DataToolsError
from data_tools.reading import Missed, Record, Unreadable, scan_records
from data_tools.texts import plain, row_texts

PROMPTS = ("prompt", "question", "problem", "instruction", "text")


def readable(path: Path, missed: Missed | None = None) -> Iterator[tuple[int, Record]]:
    """The records of a file with their line numbers; lines that cannot be read are passed over and noted in `missed`.

    Raises: `DataToolsError` at the end if there was no record: a comparison with nothing would find nothing.
    """
    own, found = Missed(), False
    for number, item in scan_records(path):
        if isinstance(item, Unreadable):
            for notes in (own, missed):
                if notes is not None:
                    notes.add(str(path), number, item.message)
            continue
        found = True
        yield number, item
    if not found:
        raise DataToolsError(own.none_left(path) if own.count else f"{path}: has no records to compare with.")


def prompts_of(path: Path, missed: Missed | None = None) -> Iterator[str]:
    """The prompts of a file, under the names that test sets use for them."""
    for _, record in readable(path, missed):
        found = row_texts(record).prompt or next((text for name in PROMPTS if (text := plain(record.get(name)))), "")
        if found.strip():
            yield found
