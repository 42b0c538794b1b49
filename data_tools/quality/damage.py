"""What goes wrong with texts on their way: encodings, invisible characters, remains of templates, a foreign script."""

import re
from collections.abc import Callable

MAX_SCRIPT = 20_000
"""Characters from which the script of a text is told."""


def mojibake(text: str) -> str | None:
    """UTF-8 that was read as Windows-1252: the first damaged place ("Ã©" for "é"), or None.

    Only what decodes to a character of everyday text counts, so that `»` behind an accented capital does not.
    """
    if text.isascii():  # the usual case
        return None
    for found in _MOJIBAKE.finditer(text):
        try:
            meant = _as_bytes(found[0]).decode("utf-8")
        except UnicodeDecodeError:
            continue
        if any(low <= ord(meant) <= high for low, high in _EVERYDAY):
            return f"{found[0]!r} stands for {meant!r}"
    return None


def replacement_character(text: str) -> str | None:
    """The place of U+FFFD, which decoders put where bytes were no text."""
    at = text.find("\ufffd")
    return None if at < 0 else f"U+FFFD at character {at}"


def control_character(text: str) -> str | None:
    """The first control character other than tab and line ends."""
    found = _CONTROL.search(text)
    return f"U+{ord(found[0]):04X} at character {found.start()}" if found else None


def invisible_character(text: str) -> str | None:
    """The first character that has no width or turns the writing direction; joiners that scripts need do not count."""
    found = _INVISIBLE.search(text)
    return f"U+{ord(found[0]):04X} at character {found.start()}" if found else None


def template_remnant(text: str) -> str | None:
    """The first piece of a chat template or of a transcript that is left in a text."""
    found = _REMNANT.search(text)
    return repr(found[0].strip()) if found else None


def script(text: str) -> str | None:
    """The script that most letters of a text belong to, None for fewer than ten letters or no clear majority."""
    text = text[:MAX_SCRIPT]
    possible = ["Latin"] if text.isascii() else _SCRIPTS
    counts = {name: len(_SCRIPTS[name].findall(text)) for name in possible}
    total = sum(counts.values())
    name = max(counts, key=counts.__getitem__)
    return name if total >= 10 and counts[name] >= 0.6 * total else None


Damage = Callable[[str], str | None]


def _as_bytes(text: str) -> bytes:
    return bytes(_TO_BYTE[character] for character in text)


def _windows_1252() -> dict[str, int]:
    """Characters above ASCII to the bytes that Windows-1252 reads as them; five bytes stand for themselves."""
    table = {}
    for byte in range(0x80, 0x100):
        try:
            table[bytes([byte]).decode("cp1252")] = byte
        except UnicodeDecodeError:
            table[chr(byte)] = byte
    return table


_TO_BYTE = _windows_1252()


def _characters(low: int, high: int) -> str:
    return "[" + "".join(re.escape(character) for character, byte in _TO_BYTE.items() if low <= byte <= high) + "]"


_NEXT = _characters(0x80, 0xBF)
_MOJIBAKE = re.compile(
    f"{_characters(0xF0, 0xF4)}{_NEXT}{{3}}|{_characters(0xE0, 0xEF)}{_NEXT}{{2}}|{_characters(0xC2, 0xDF)}{_NEXT}"
)
_EVERYDAY = (
    (0xA0, 0x17F),  # Latin
    (0x391, 0x3C9),  # Greek
    (0x401, 0x451),  # Cyrillic
    (0x2010, 0x2044),  # dashes and quotes
    (0x20AC, 0x20AC),  # euro
    (0x2122, 0x2122),  # trade mark
    (0x2190, 0x22FF),  # arrows and mathematics
    (0x2500, 0x27BF),  # boxes and symbols
    (0x3001, 0x30FF),  # Japanese
    (0x4E00, 0x9FFF),  # Han
    (0xAC00, 0xD7A3),  # Hangul
    (0xFF01, 0xFF5E),  # wide forms
    (0x1F300, 0x1FAFF),  # emoji
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb]")
_REMNANT = re.compile(
    r"<\|[A-Za-z][A-Za-z0-9_]{1,40}\|>|<｜[^<>｜\n]{1,40}｜>"  # <|im_start|> and the like
    r"|\[/?INST\]|<</?SYS>>|\[gMASK\]|</s>|<s>"
    r"|<(?:bos|eos|pad|unk|start_of_turn|end_of_turn|extra_id_\d{1,3})>"
    r"|^[^\S\n]{0,20}(?:Human|Assistant|USER|ASSISTANT|SYSTEM)[^\S\n]?:"
    r"|^#{2,4} ?(?:Instruction|Response|Human|Assistant|User|System)\b:?"
    r"|\{\{ ?[a-z_]{1,40} ?\}\}",
    re.MULTILINE,
)
_SCRIPTS = {
    "Latin": re.compile("[A-Za-z\u00c0-\u024f]"),
    "Greek": re.compile("[\u0370-\u03ff]"),
    "Cyrillic": re.compile("[\u0400-\u04ff]"),
    "Hebrew": re.compile("[\u0590-\u05ff]"),
    "Arabic": re.compile("[\u0600-\u06ff]"),
    "Devanagari": re.compile("[\u0900-\u097f]"),
    "Thai": re.compile("[\u0e00-\u0e7f]"),
    "Hangul": re.compile("[\uac00-\ud7af]"),
    "Han or kana": re.compile("[\u3040-\u30ff\u3400-\u9fff]"),
}
