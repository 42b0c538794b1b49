"""What a text looks like, whatever it says: the features from which chosen and rejected should not be told apart."""

import math
import re
from collections.abc import Callable

MAX_TEXT = 50_000
"""Characters that features are counted in."""

Feature = Callable[[str], float]

_NUMBERS = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def surface(text: str) -> list[float]:
    """The features of a text in the order of `FEATURES`: counts as log(1 + count), properties as 0 or 1."""
    text = text[:MAX_TEXT]
    counts = (math.log1p(count(text)) for count in _COUNTS.values())
    properties = (float(bool(has(text))) for has in _PROPERTIES.values())
    return [*_numbers(text), *counts, *properties]


def _numbers(text: str) -> list[float]:
    """How numbers look: how many, how long, how large, how round."""
    found = _NUMBERS.findall(text)
    plain = [number.replace(",", "") for number in found]
    longest = max((len(number) for number in found), default=0)
    whole = max((len(number.partition(".")[0].lstrip("0")) for number in plain), default=0)
    decimals = [number.partition(".")[2] for number in plain if "." in number]
    return [
        math.log1p(len(found)),
        math.log1p(longest),
        float(whole),
        math.log1p(len(decimals)),
        math.log1p(sum(map(len, decimals))),
        math.log1p(sum(number.endswith("0") and "." not in number for number in plain)),
        math.log1p(sum(number.endswith("5") and "." not in number for number in plain)),
        math.log1p(sum(len(number) == 1 for number in plain)),
        math.log1p(sum("," in number for number in found)),
        math.log1p(len(found) - len(set(plain))),
    ]


_NUMBER_NAMES = (
    "numbers",
    "length of the longest number",
    "digits of the largest number",
    "numbers with decimals",
    "decimal places",
    "numbers that end in 0",
    "numbers that end in 5",
    "one-digit numbers",
    "numbers with thousands commas",
    "repeated numbers",
)


_VALUE_NAMES = (
    "digits of the largest number",
    "numbers that end in 0",
    "numbers that end in 5",
    "one-digit numbers",
    "repeated numbers",
)


def _matches(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> Feature:
    compiled = re.compile(pattern, flags)
    return lambda text: sum(1 for _ in compiled.finditer(text))


def _characters(characters: str) -> Feature:
    return lambda text: sum(map(text.count, characters))


def _has(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> Feature:
    compiled = re.compile(pattern, flags)
    return lambda text: compiled.search(text) is not None


_COUNTS: dict[str, Feature] = {
    "characters": len,
    "words": lambda text: len(text.split()),
    "lines": _characters("\n"),
    "empty lines": _matches(r"\n[^\S\n]*(?=\n)"),
    "sentences": _matches(r"[.!?](?=\s|\Z)"),
    "digits": _matches(r"\d"),
    "capital letters": _matches(r"[A-Z]"),
    "words in capitals": _matches(r"\b[A-Z]{2,}\b"),
    "commas": _characters(","),
    "colons and semicolons": _characters(":;"),
    "question marks": _characters("?"),
    "exclamation marks": _characters("!"),
    "quotation marks": _characters('"“”«»'),
    "round brackets": _characters("()"),
    "dashes": _matches(r"[–—]|(?<=\s)-(?=\s[A-Za-z])"),
    "equals signs": _characters("="),
    "plus signs": _characters("+"),
    "minus signs": _matches(r"(?<=[\d)\s])[-−](?=[\s\d($])"),
    "multiplication signs": _matches(r"[*×·](?!\*)(?<!\*\*)|\\times|\\cdot|(?<=\d)\s?x\s?(?=\d)"),
    "division signs": _matches(r"(?<=[\d\s)])[/÷](?=[\s\d($])|\\div"),
    "negative numbers": _matches(r"(?:(?<=[=(:*/+])\s?|(?<=[=(:*/+]\s)\$?)[-−]\$?\d"),
    "currency signs": _characters("$€£"),
    "per cent signs": _characters("%"),
    "LaTeX commands": _matches(r"\\[a-zA-Z]+"),
    "bold or italic": _matches(r"\*\*?[^\s*][^*\n]*\*|__[^_\n]+__"),
    "list items": _matches(r"^[^\S\n]{0,40}(?:[-*•]|\d{1,3}[.)])\s", re.MULTILINE),
    "headings": _matches(r"^#{1,6} ", re.MULTILINE),
    "code": _characters("`"),
    "table bars": _characters("|"),
    "links": _matches(r"https?://|\]\("),
    "characters outside ASCII": _matches(r"[^\x00-\x7f]"),
    "double spaces": _matches(r"(?<=\S)  +"),
    "words of doubt": _matches(r"\b(?:wait|however|actually|but|maybe|perhaps|instead|hmm)\b", re.IGNORECASE),
    "words of error": _matches(
        r"\b(?:mistake\w*|incorrect\w*|wrong\w*|error\w*|misinterpret\w*|sorry|apolog\w*)\b", re.IGNORECASE
    ),
    "words of conclusion": _matches(r"\b(?:so|therefore|thus|hence|finally|in total)\b", re.IGNORECASE),
}
_PROPERTIES: dict[str, Feature] = {
    "white space at the beginning": _has(r"\A\s"),
    "white space at the end": _has(r"\s\Z"),
    "a full stop at the end": _has(r"[.!?]\s*\Z"),
    "a capital at the beginning": _has(r"\A\s*[A-Z]"),
    "a statement of the final answer": _has(
        r"answer is|####|^[^\S\n]{0,40}(?:A|Answer):", re.IGNORECASE | re.MULTILINE
    ),
    "a box": _has(r"\\boxed|\\fbox"),
    "a number at the end": _has(r"\d\W*\Z"),
}

FEATURES = (*_NUMBER_NAMES, *_COUNTS, *_PROPERTIES)
"""The names of the features, as words that a sentence can use."""

VALUES = frozenset(FEATURES.index(name) for name in _VALUE_NAMES)
"""Features of what numbers are rather than how they are written. Wrong values are often less round than right ones."""
