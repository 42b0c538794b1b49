"""Files that are only compared with: other splits, test sets."""

from collections.abc import Iterator
from pathlib import Path

from data_tools.reading import Record, Unreadable, scan_records
from data_tools.texts import plain, row_texts

PROMPTS = ("prompt", "question", "problem", "instruction", "text")


def readable(path: Path) -> Iterator[tuple[int, Record]]:
    """The records of a file with their line numbers; lines that cannot be read are passed over."""
    for number, item in scan_records(path):
        if not isinstance(item, Unreadable):
            yield number, item


def prompts_of(path: Path) -> Iterator[str]:
    """The prompts of a file, under the names that test sets use for them."""
    for _, record in readable(path):
        found = row_texts(record).prompt or next((text for name in PROMPTS if (text := plain(record.get(name)))), "")
        if found.strip():
            yield found
