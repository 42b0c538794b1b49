"""Signs of operators: another operator in the notation that the text uses."""

from collections.abc import Mapping

from data_tools.equations import Token

flipped: Mapping[str, tuple[str, ...]] = {"+": ("-", "*"), "-": ("+",), "*": ("/", "+"), "/": ("*",)}
"""What an operator is mistaken for."""

_SIGNS: Mapping[str, tuple[str, ...]] = {
    "+": ("+",),
    "-": ("−", "–", "-"),
    "*": ("\\times", "\\cdot", "×", "·", " x ", "*"),
    "/": ("\\div", "÷", "/"),
}
_WORDS: Mapping[str, str] = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}


def operator_sign(text: str, old: Token, new: str) -> str:
    """The sign for operator `new` in place of the token `old`: a word for a word, else what the text writes."""
    before = text[old.start : old.end]
    if before in _WORDS.values():
        return _WORDS[new]
    partner = {"\\times": "\\div", "\\div": "\\times", "×": "÷", "÷": "×"}.get(before)
    if partner and new in ("*", "/"):
        return partner
    for sign in _SIGNS[new]:
        if sign in text:
            sign = sign.strip()
            if sign == "x" and text[old.start - 1 : old.start] != " ":  # "5x(3" would not be read
                return "*"
            return sign
    return _SIGNS[new][-1]
