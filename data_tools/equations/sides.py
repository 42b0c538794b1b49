"""One side of an equation: the longest expression that touches an equals sign.

Words may stand between an operand and what follows it ("3 boxes * 4 pens/box = 12 pens"): they are units. Where
something that is no number touches the expression ("x + 5 * 3", "2 500"), the side is not read at all.
"""

import re

from data_tools.equations.equation import Side
from data_tools.equations.expression import evaluate
from data_tools.equations.tokens import BREAK, CLOSE, EQUALS, NUMBER, ODD, OPEN, OPERATOR, WORDS, Token

MAX_UNIT_CHARACTERS = 40
_NO_UNIT = re.compile(
    r"(?<![A-Za-z'’])(?:[^\W\d_ahmgLlsd]|and|or|so|then|because|which|that|but|if|where)(?![A-Za-z'’])"
)


def left_side(text: str, tokens: list[Token], sign: int) -> Side | None:
    """The longest expression that ends at an equals sign."""
    end = sign
    at = end - 1
    while True:
        if (
            at > 0
            and tokens[at].kind == WORDS
            and tokens[at - 1].kind in (NUMBER, CLOSE)
            and _is_unit(text, tokens[at])
        ):
            at -= 1
        start = _operand_before(tokens, at)
        if start is None:
            return None
        before = start - 1
        if before < 0:
            break
        token = tokens[before]
        if token.kind == OPERATOR:
            if _joins(text, tokens, before):
                at = before - 1
                continue
            if token.value == "*" and text.startswith("of", token.start):
                break
            if token.value != "-":
                return None
            if token.end != tokens[start].start:  # a bullet or a dash, not a sign
                if before and tokens[before - 1].kind != BREAK:
                    return None
                break
            start = before
            if before and tokens[before - 1].kind == OPERATOR:  # "3 * -2": a sign behind an operator
                if not _joins(text, tokens, before - 1):
                    return None
                at = before - 2
                continue
            break
        if _implied(tokens, before):
            at = before
            continue
        break
    return _side(text, tokens, start, end) if _clean_before(text, tokens, start) else None


def right_side(text: str, tokens: list[Token], at: int) -> tuple[Side | None, int]:
    """The longest expression that begins at a token, and the index of what follows it and its unit."""
    start = at
    while True:
        if at < len(tokens) and tokens[at].value == "-" and tokens[at].kind == OPERATOR:
            at += 1
        at = _operand_after(tokens, at)
        if at < 0:
            return None, start
        if at < len(tokens) and _implied(tokens, at - 1):
            continue
        end = at
        if at < len(tokens) and tokens[at].kind == WORDS:
            if not _is_unit(text, tokens[at]):  # the side ends here, and so does the chain
                return _side(text, tokens, start, end), -1
            at += 1
        if not _continues(text, tokens, at):
            break
        at += 1
    side = _side(text, tokens, start, end)
    return (side, at) if side is not None and _clean_after(text, tokens, end, at) else (None, start)


def _operand_before(tokens: list[Token], at: int) -> int | None:
    """Where the operand that ends with a token starts: a number, or a pair of brackets."""
    if at < 0:
        return None
    if tokens[at].kind == NUMBER:
        return at
    if tokens[at].kind != CLOSE:
        return None
    depth = 0
    while at >= 0 and tokens[at].kind not in (EQUALS, BREAK):
        depth += (tokens[at].kind == CLOSE) - (tokens[at].kind == OPEN)
        if depth == 0:
            return at
        at -= 1
    return None


def _operand_after(tokens: list[Token], at: int) -> int:
    """The index behind the operand that starts with a token, or -1."""
    if at >= len(tokens):
        return -1
    if tokens[at].kind == NUMBER:
        return at + 1
    depth = 0
    while at < len(tokens) and tokens[at].kind not in (EQUALS, BREAK):
        depth += (tokens[at].kind == OPEN) - (tokens[at].kind == CLOSE)
        at += 1
        if depth <= 0:
            return at if depth == 0 and tokens[at - 1].kind == CLOSE else -1
    return -1


def _joins(text: str, tokens: list[Token], at: int) -> bool:
    """Whether an operator has an operand on its left. "of" multiplies only behind a fraction or a percentage."""
    before = at - 1
    if before < 0:
        return False
    if tokens[at].value == "*" and text.startswith("of", tokens[at].start):
        part = before > 0 and tokens[before - 1].value == "/" and tokens[before - 1].kind == OPERATOR
        return tokens[before].kind == NUMBER and (tokens[before].percent or part)
    if tokens[before].kind == WORDS:
        return before > 0 and _has_unit(text, tokens, before)
    return tokens[before].kind in (NUMBER, CLOSE)


def _continues(text: str, tokens: list[Token], at: int) -> bool:
    """Whether an operator and the start of an operand follow."""
    if at + 1 >= len(tokens) or tokens[at].kind != OPERATOR or not _joins(text, tokens, at):
        return False
    if text.startswith("of", tokens[at].start):  # "= 1/3 of $150": the result is the third
        return False
    after = tokens[at + 1]
    if after.kind == OPERATOR and after.value == "-" and at + 2 < len(tokens):
        return after.end == tokens[at + 2].start and tokens[at + 2].kind in (NUMBER, OPEN)
    return after.kind in (NUMBER, OPEN)


def _implied(tokens: list[Token], at: int) -> bool:
    """Whether a product without a sign stands between a token and the next: "2(3 + 4)", "(2)(3)"."""
    if at + 1 >= len(tokens):
        return False
    left, right = tokens[at], tokens[at + 1]
    return left.kind in (NUMBER, CLOSE) and right.kind == OPEN and left.end == right.start and left.bare


def _stacked(text: str, kept: list[Token], slash: Token) -> bool:
    """Whether "a / b/c" is read differently by different people: a spaced bar, then a tight one."""
    if len(kept) < 2 or kept[-2].value != "/":
        return False
    tight, other = (not text[sign.start - 1 : sign.end + 1].count(" ") for sign in (slash, kept[-2]))
    return tight and not other


def _has_unit(text: str, tokens: list[Token], at: int) -> bool:
    """Whether the words at a token are the unit of the operand before them."""
    return tokens[at - 1].kind in (NUMBER, CLOSE) and _is_unit(text, tokens[at])


def _is_unit(text: str, words: Token) -> bool:
    """Whether words can stand between an operand and its operator: few, no names of unknowns, no conjunctions."""
    return words.end - words.start <= MAX_UNIT_CHARACTERS and not _NO_UNIT.search(text, words.start, words.end)


def _clean_before(text: str, tokens: list[Token], start: int) -> bool:
    """Whether nothing that belongs to the expression, but was not read, stands before it."""
    if start == 0:
        return True
    before, first = tokens[start - 1], tokens[start]
    if before.kind in (NUMBER, CLOSE):
        return False
    if before.kind == WORDS:  # "1 and 1/4": one number
        return not (start > 1 and tokens[start - 2].kind == NUMBER and text[before.start : before.end] == "and")
    if before.kind == BREAK and start > 1 and tokens[start - 2].kind == OPERATOR:  # "0.8 + . 84"
        return False
    if before.end == first.start:
        return before.kind != ODD and text[before.start] not in "√^_!|\\{}&"
    return not (text[before.start] == "," and start > 1 and tokens[start - 2].kind == NUMBER)  # "14, 400"


def _clean_after(text: str, tokens: list[Token], end: int, at: int) -> bool:
    """Whether nothing that belongs to the expression, but was not read, stands behind it (and its unit)."""
    if at >= len(tokens):
        return True
    after = tokens[at]
    if after.kind == OPERATOR:  # a dash may follow; an operator with something unread may not
        return after.value == "-" and text[after.start - 1 : after.start].isspace() and after.end != len(text)
    if after.kind == NUMBER:  # "2 500" may be one number, "3 hours 20 minutes" is one quantity
        return text[after.start] in "$£€" or (at > end and " " in text[tokens[end].start : tokens[end].end])
    if after.kind == OPEN:
        return tokens[at - 1].end != after.start
    return not (after.kind == ODD and (after.end - after.start == 1 or tokens[at - 1].end == after.start))


def _side(text: str, tokens: list[Token], start: int, end: int) -> Side | None:
    """The tokens as an expression: unit words aside, products without a sign made visible."""
    kept: list[Token] = []
    units: list[str] = []
    last = start
    for at in range(start, end):
        token = tokens[at]
        if token.kind == WORDS:
            if not kept or kept[-1].kind not in (NUMBER, CLOSE):  # a quantity in words
                return None
            units.append(text[token.start : token.end])
            continue
        if token.kind not in (NUMBER, OPERATOR, OPEN, CLOSE):
            return None
        if kept and token.kind == OPEN and _implied(tokens, at - 1):
            if len(kept) > 1 and kept[-2].value == "/":  # "6 / 2(1 + 2)" is read differently by different people
                return None
            kept.append(Token(OPERATOR, token.start, token.start, "*", bare=False))
        if token.value == "/" and _stacked(text, kept, token):
            return None
        kept.append(token)
        last = at
    unit_end = tokens[end - 1].end
    if end < len(tokens) and tokens[end].kind == WORDS:
        units.append(text[tokens[end].start : tokens[end].end])
        unit_end = tokens[end].end
    if not kept:
        return None
    return Side(tuple(kept), tuple(units), tokens[start].start, tokens[last].end, unit_end, evaluate(kept))


def is_label(side: Side, text: str, tokens: list[Token], sign: int) -> bool:
    """Whether the first side of a chain names what follows, not computes it: "8 batches =", "3/8 is equal to"."""
    start = tokens[sign].start
    if side.result is not None:
        before = sign - len(side.tokens) - 1
        named = before >= 0 and tokens[before].kind == WORDS
        return bool(side.units) or named or not text.startswith("=", start)
    bare = all(text[token.start] == "/" for token in side.tokens if token.kind == OPERATOR)
    return bare and (text.startswith("is", start) or any(unit.startswith("of ") for unit in side.units))
