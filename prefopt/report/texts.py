"""Texts of a data set, made fit to be shown: nothing invisible, nothing endless, and the words that differ marked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_HIDDEN = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u2028\u2029\ufeff\u200b{_BIDI}]")
_ACCENTS = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_PILED = re.compile(f"({_ACCENTS}{{4}})({_ACCENTS}+)")
_WORDS = re.compile(r"\s*(?:\d+|[^\W\d]+|[^\w\s])|\s+")
COMPARED = 4_000
"""Characters of each response that are compared word by word."""


def visible(text: str) -> str:
    """The text with control characters, marks of writing direction and lone surrogates spelt out, e.g. `[U+202E]`.

    Line ends become one line feed; tabs stay. Of accents piled on one letter four stay, since piles cover other lines.
    """
    spelt = _HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text.replace("\r\n", "\n"))
    return _PILED.sub(lambda found: f"{found[1]}[{len(found[2])} more accents]", spelt)


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
            pieces[side].extend(_pieces("".join(words[side][start:end]), differs=tag != "equal"))
    return pieces


def _pieces(text: str, *, differs: bool) -> list[Piece]:
    """A stretch as pieces; the space before words that differ is not marked."""
    space = len(text) - len(text.lstrip()) if differs else 0
    return [piece for piece in (Piece(text[:space], False), Piece(text[space:], differs)) if piece.text]
