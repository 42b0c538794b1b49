"""Texts as sets: tokens, and hashes of runs of tokens.

A token is a word, a number, a sign of arithmetic, or one character of a script that is written without spaces. Case,
other punctuation and white space do not count.
"""

import re
import unicodedata
from hashlib import blake2b
from itertools import islice
from zlib import crc32

_TOKEN = re.compile(r"[぀-ヿ㐀-鿿가-힯฀-๿]|[^\W_぀-ヿ㐀-鿿가-힯฀-๿]+|[-+*/=<>^%$]")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def tokens(text: str) -> list[str]:
    """The tokens of a text, in order."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(words: list[str], size: int) -> set[int]:
    """Hashes (32 bit) of all runs of `size` tokens; a shorter text is one run."""
    if len(words) <= size:
        return {crc32(" ".join(words).encode())} if words else set()
    runs = zip(*(islice(words, start, None) for start in range(size)), strict=False)
    return {crc32(" ".join(run).encode()) for run in runs}


def jaccard(a: set[int], b: set[int]) -> float:
    """Size of the intersection over size of the union; two empty sets are equal."""
    if not a and not b:
        return 1.0
    common = len(a & b)
    return common / (len(a) + len(b) - common)


def numbers(text: str) -> str:
    """The numbers of a text, in order: what tells apart problems that share their wording."""
    return " ".join(_NUMBER.findall(text))


def digest(*parts: str) -> int:
    """A 64-bit hash of texts that tells "ab", "c" from "a", "bc"."""
    hashed = blake2b(digest_size=8)
    for part in parts:
        content = part.encode("utf-8", "surrogatepass")
        hashed.update(len(content).to_bytes(8, "little"))
        hashed.update(content)
    return int.from_bytes(hashed.digest(), "little")
