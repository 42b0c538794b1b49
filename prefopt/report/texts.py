"""Texts of a data set, made fit to be shown: nothing invisible, nothing endless, and the words that differ marked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_HIDDEN = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u2028\u2029\ufeff\u200b{_BIDI}]")
_WORDS = re.compile(r"\s+|\d+|[^\W\d]+|[^\w\s]")
COMPARED = 4_000
"""Characters of each response that are compared word by word."""


def visible(text: str) -> str:
    """The text with control characters, marks of writing direction and lone surrogates spelt out, e.g. `[U+202E]`.

    Line ends become one line feed; tabs stay.
    """
    return _HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text.replace("\r\n", "\n"))


def clipped(text: str, limit: int) -> str:
    """At most `limit` characters, with a note of how many were left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} [… {len(text) - limit:,} more characters]"


@dataclass(frozen=True)
class Piece:
    """A stretch of text, and whether the other response has it too."""

    text: str
    differs: bool


def compared(first: str, second: str) -> tuple[list[Piece], list[Piece]]:
    """Two texts in pieces, word by word; of longer texts the first `COMPARED` characters."""
    texts = [clipped(text, COMPARED) for text in (first, second)]
    words = [_WORDS.findall(text) for text in texts]
    matcher = SequenceMatcher(a=words[0], b=words[1], autojunk=False)
    pieces: tuple[list[Piece], list[Piece]] = ([], [])
    for tag, *spans in matcher.get_opcodes():
        for side, (start, end) in enumerate((spans[:2], spans[2:])):
            if end > start:
                pieces[side].append(Piece("".join(words[side][start:end]), tag != "equal"))
    return pieces
