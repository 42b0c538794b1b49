"""A second opinion on injected errors: its own reading of equations, its own arithmetic, nothing of `data_tools`.

It cuts a line at its equals signs, deletes words, and evaluates the longest end of the left part that Python's own
parser takes for an arithmetic expression. That is cruder than the injector's grammar, and different from it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

_SIGNS = {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "plus": "+", "minus": "-", "times": "*", "divided by": "/"}
_RESULT = re.compile(r"\s*(-?)\s*\$?\s*(-?)(\d[\d,]*(?:\.\d+)?|\.\d+)(\s?%)?")
_FINAL = re.compile(r"(?:####|answer is:?|boxed\{)(?:\s|\\boxed\{)*(-?)\$?(-?)([\d,]*\.?\d+)")


class Claim(NamedTuple):
    """`left = right` as read here; `decimals` of the right side."""

    left: Fraction
    right: Fraction
    decimals: int
    percent: bool

    @property
    def holds(self) -> bool:
        """Exactly, or within half a unit of the last printed decimal; a result in per cent by either reading."""
        allowed = Fraction(1, 2 * 10**self.decimals) if self.decimals else Fraction(0)
        near = abs(self.left - self.right) <= allowed
        return near or (self.percent and abs(100 * self.left - self.right) <= allowed)


def claims(text: str) -> list[Claim]:
    """The equations of a text that can be read here."""
    return [claim for line in re.split(r"\n|\.\s", text) for claim in _claims_of_line(line)]


def _claims_of_line(line: str) -> Iterator[Claim]:
    line = re.sub(r"\b(?:equals|is equal to)\b", "=", line)
    for word, sign in _SIGNS.items():
        line = re.sub(rf"\b{word}\b", sign, line) if word.isalpha() or " " in word else line.replace(word, sign)
    line = re.sub(r"(?<=[\d)\s%])[xX](?=[\s\d(.$])", "*", line)
    line = re.sub(r"(%|/\s?\d+) of (?=\$?[\d(])", r"\1 * ", line)
    line = re.sub(r"[$€£]", "", line)
    pieces = line.split("=")
    for before, after in pairwise(pieces):
        left, result = _value_at_end(before), _RESULT.match(after)
        if left is None or result is None:
            continue
        digits = result[3].replace(",", "")
        value = Fraction(digits) * (-1 if (result[1] or result[2]) else 1)
        yield Claim(left, value, len(digits.partition(".")[2]), result[4] is not None)


def _value_at_end(text: str) -> Fraction | None:
    """The value of the longest end of a text that is an expression with an operator, units left out."""
    text = re.sub(r"/\s?[A-Za-z][A-Za-z'’-]*", " ", text)  # "per unit"
    text = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b", " § ", text)
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"[A-Za-z°'’]+(?:-[A-Za-z]+)*", " ", text)
    text = re.sub(r"(?<=\d)\s?%", "/100", text)
    for start in re.finditer(r"(?<![\d.])[-(.\d]", text):
        end = text[start.start() :].strip()
        if not re.fullmatch(r"[-+*/().\d\s]+", end) or not re.search(r"\d\)*\s*[-+*/(]\s*[-(.\d]", end):
            continue
        end = re.sub(r"(?<=[\d)])\s*\(", "*(", end)
        end = re.sub(r"\b0+(?=\d)", "", end)
        try:
            return _value(ast.parse(end, mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError):
            continue
    return None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
    raise ValueError("not arithmetic")


def is_wrong(right: str, wrong: str) -> bool | None:
    """Whether a text is wrong where the other is right: an equation that is false, or states another value.

    None where the equations cannot be read here in both texts alike.
    """
    good, bad = claims(right), claims(wrong)
    if any(not b.holds and (len(good) != len(bad) or g.holds) for g, b in zip(good or bad, bad, strict=False)):
        return True
    if len(good) != len(bad) or not bad:
        return None
    return any(g.right != b.right or g.left != b.left for g, b in zip(good, bad, strict=True))


def final_number(text: str) -> Fraction | None:
    """The number behind the last statement of the answer."""
    found = _FINAL.findall(text)
    if not found:
        return None
    sign, other, digits = found[-1]
    return Fraction(digits.replace(",", "")) * (-1 if sign or other else 1)


def faults(row: Mapping[str, Any], solution: str) -> list[str]:
    """What is wrong with a row as a pair made from a solution; an empty list if nothing is.

    "unread" says that this reader could not decide; every other entry is a defect.
    """
    prefix, chosen, rejected = row["initial_reason_steps"], row["chosen"], row["rejected"]
    found = []
    if not (solution.startswith(prefix) and solution[len(prefix) :].startswith(chosen)):
        found.append("the right text is not the solution's")
    if rejected.split() == chosen.split():
        found.append("both sides are equal")
    wrong = is_wrong(chosen, rejected)
    if wrong is not True:
        found.append("unread" if wrong is None else "all equations hold, and no value differs")
    if row["pair_kind"] != "step":
        stated, gold = final_number(rejected), Fraction(str(row["answer"]).replace(",", ""))
        if stated is None or stated == gold:
            found.append("the wrong solution states the right answer")
    for side, other in (("chosen", "rejected"), ("rejected", "chosen")):
        kept = _without(row[side], row[f"diff_spans_{side}"])
        if kept != _without(row[other], row[f"diff_spans_{other}"]):
            found.append("the texts differ outside of the marked spans")
            break
    return found


def _without(text: str, spans: list[list[int]]) -> str:
    pieces, at = [], 0
    for start, end in spans:
        pieces.append(text[at:start])
        at = end
    return "\0".join([*pieces, text[at:]])
