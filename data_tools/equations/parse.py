"""Equations among the tokens of a text: chains of sides around equals signs."""

from dataclasses import dataclass
from functools import cached_property

from data_tools.equations.equation import Equation, Side, Site, equation_of
from data_tools.equations.plain import plain_equations
from data_tools.equations.sides import is_label, left_side, right_side
from data_tools.equations.tokens import EQUALS, NUMBER, Token, tokenize


@dataclass(eq=False)
class Reading:
    """What was read: equations in the order of the text, and the places of equals signs that could not be read."""

    text: str
    begin: int
    end: int | None
    equations: list[Equation]
    unread: list[int]

    @property
    def sites(self) -> list[Site]:
        """The true equations with a plain result."""
        return [equation.site for equation in self.equations if equation.site is not None]

    @cached_property
    def numbers(self) -> list[Token]:
        """All numbers, in equations or not."""
        return [token for token in tokenize(self.text, self.begin, self.end) if token.kind == NUMBER]


def find_equations(text: str, begin: int = 0, end: int | None = None) -> list[Equation]:
    """The equations in `text[begin:end]`, at their places in `text`."""
    return read_equations(text, begin, end).equations


def read_equations(text: str, begin: int = 0, end: int | None = None) -> Reading:
    """Read a text. Time is linear in its length."""
    plain = plain_equations(text, begin, len(text) if end is None else end)
    if plain is not None:
        return Reading(text, begin, end, plain, [])
    return read_tokens(text, begin, end)


def read_tokens(text: str, begin: int = 0, end: int | None = None) -> Reading:
    """`read_equations` by the whole grammar."""
    tokens = tokenize(text, begin, end)
    signs = [at for at, token in enumerate(tokens) if token.kind == EQUALS]
    equations: list[Equation] = []
    unread: list[int] = []
    chain: list[Side] = []
    reached = -1  # index of the equals sign that the chain's last side ends at
    for sign in signs:
        if sign != reached:
            _close(chain, equations)
            left = left_side(text, tokens, sign)
            chain = [left] if left is not None and not is_label(left, text, tokens, sign) else []
        right, after = right_side(text, tokens, sign + 1)
        if right is None or not chain:
            unread.append(tokens[sign].start)
        if right is None:
            _close(chain, equations)
            chain, reached = [], -1
        else:
            chain, reached = [*chain, right], after
    _close(chain, equations)
    return Reading(text, begin, end, equations, unread)


def _close(chain: list[Side], equations: list[Equation]) -> None:
    if len(chain) > 1 and any(side.result is None for side in chain):
        equations.append(equation_of(chain))
