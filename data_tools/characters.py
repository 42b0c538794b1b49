"""Numbers in characters of their own, as people type them, in the characters that arithmetic is written in."""

import re
import unicodedata

_FRACTION = re.compile(r"(\d?)\s?([¼-¾⅐-⅞↉])")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_RAISED = re.compile("[⁻]?[⁰¹²³⁴-⁹]+")
_GROUPS = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_MINUS = re.compile("[−–‒﹣－]")


def plain_characters(text: str) -> str:
    """The text with "½" as "1/2", "2½" as "2 1/2", "10²" as "10^2", "１２" as "12", and plain minus signs and spaces.

    A narrow space, or one without a break, between thousands goes.
    """
    text = _RAISED.sub(lambda found: f"^{{{found[0].translate(_SUPERSCRIPTS)}}}", text)
    text = _FRACTION.sub(lambda found: f"{found[1]} {_spelt(found[2])}" if found[1] else _spelt(found[2]), text)
    text = _MINUS.sub("-", _GROUPS.sub("", text))
    return unicodedata.normalize("NFKC", text).replace("\u2044", "/")


def _spelt(character: str) -> str:
    """The fraction with a plain bar."""
    return unicodedata.normalize("NFKC", character).replace("\u2044", "/")
