"""Where a solution states its final answer, and what it is: numbers and other expressions alike.

`data_tools.answers.final_answer` gives numbers in a normal form; here the answer keeps its text, so that fractions,
expressions and words can be compared by `data_tools.equality`.
"""

import re
from collections import deque

from data_tools.equations import Token, tokenize

MAX_ANSWER = 1000
"""Longer texts are nobody's final answer."""

_BOXED = re.compile(r"\\(?:boxed|fbox)\s?\{")
_HASHES = re.compile(r"####[^\S\n]*")
_SAID = re.compile(r"\b(?:the\s{1,3})?(?:final\s{1,3})?answer\s{1,3}is(?:\s?:)?\s{0,3}", re.IGNORECASE)
_LABEL = re.compile(r"^[^\S\n]*(?:A|Answer|Final answer)[^\S\n]?:[^\S\n]*", re.MULTILINE | re.IGNORECASE)
_MARKERS = ((_BOXED, "box"), (_HASHES, "####"), (_SAID, "answer"), (_LABEL, ":"))
"""The ways to state an answer, each with letters without which a text does not have it: they are found much sooner."""

_SENTENCE_END = re.compile(r"\.(?!\d)\s|\.?\s*\n|\.?\s*\Z")
_LAST_NUMBER = re.compile(r"[-−]?(?:\d{1,3}(?>(?:,\d{3})+)|\d++)(?:\.\d++)?|[-−]?\.\d++")


def extract_answer(text: str, *, last_number: bool = False) -> str | None:
    """The final answer as the text states it, or None.

    First hit wins: the last `\\boxed{...}` with balanced braces, the last `#### x`, the last "answer is x", the last
    line "Answer: x", and, if asked for, the last number of the text's last sentence.
    """
    boxed = _last(_BOXED, text)
    if boxed is not None:
        return _braced(text, boxed.end())
    for marker in (_HASHES, _SAID, _LABEL):
        found = _last(marker, text)
        if found is not None:
            return _stated(text, found.end())
    if not last_number:
        return None
    sentence = text.rstrip()[-MAX_ANSWER:]
    numbers = _LAST_NUMBER.findall(re.split(r"(?<=[.!?])\s|\n", sentence)[-1])
    return numbers[-1].replace("−", "-") if numbers else None


def answer_number(text: str) -> Token | None:
    """The first number behind the last statement of the answer, at its place in the text."""
    lower = text.lower()
    there = (_last(marker, text) for marker, letters in _MARKERS if letters in lower)
    ends = [found.end() for found in there if found is not None]
    if not ends:
        return None
    begin = max(ends)
    line = text.find("\n", begin + 1)
    end = min(len(text) if line < 0 else line, begin + 200)
    return next((token for token in tokenize(text, begin, end) if token.kind == "n"), None)


def _stated(text: str, begin: int) -> str | None:
    rest = text[begin : begin + MAX_ANSWER]
    end = _SENTENCE_END.search(rest)
    answer = rest[: end.start()] if end else rest
    return answer.strip().strip("*").strip() or None


def _braced(text: str, begin: int) -> str | None:
    """The text up to the brace that closes the one before `begin`."""
    depth = 1
    for at in range(begin, min(len(text), begin + MAX_ANSWER)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[begin:at].strip() or None
    return None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None
