"""Errors in Python solutions that come with tests: one small change of the source, kept only if a test fails."""

import ast
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from data_tools.inject.edits import Replacement, edit
from data_tools.inject.item import Injection, SolutionItem
from data_tools.sandbox import Outcome, Sandbox

CODE_KINDS = ("comparison", "off_by_one", "operator", "wrong_variable")

_COMPARISONS = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "==": ("!=",),
    "!=": ("==",),
}
_OPERATORS = {"+": ("-",), "-": ("+",), "*": ("+", "//"), "//": ("%", "*"), "%": ("//",), "/": ("*",)}
_FENCE = re.compile(r"```(?:python|py)?[^\S\n]*\n(.*?)```", re.DOTALL)
MAX_SOURCE = 20_000


@dataclass(frozen=True)
class Mutation:
    """One change of a source text."""

    kind: str
    replacement: Replacement
    old: str


@dataclass(frozen=True)
class CodeInjector:
    """Draws changes of the source until one makes a test fail that the original passes.

    `tests` are the statements that the solution must survive. Only changes that give a wrong result are kept: one that
    no test notices is no error, one that crashes gives itself away, and one that runs without end proves nothing.
    """

    tests: Sequence[str]
    attempts: int = 8
    pairs: int = 1
    sandbox: Sandbox = field(default_factory=Sandbox)

    name: ClassVar[str] = "code"
    version: ClassVar[int] = 1

    def inject(self, item: SolutionItem, rng: random.Random) -> list[Injection]:
        """Up to `pairs` failing versions; none where the original itself fails a test or cannot be parsed."""
        text = item.steps.text
        begin, end = code_span(text)
        source = text[begin:end]
        found: list[Injection] = []
        choices = list(_by_kind(mutations(source), rng))
        if not choices or self.sandbox.run(source, self.tests) is not Outcome.PASSED:
            return found
        for mutation in choices[: self.attempts]:
            wrong = edit(source, [mutation.replacement]).text
            if self.sandbox.run(wrong, self.tests) is Outcome.FAILED:
                found.append(_injection(text, begin, mutation))
            if len(found) == self.pairs:
                break
        return found


def code_span(text: str) -> tuple[int, int]:
    """Where the program is: in the first fenced block, or the whole text."""
    fence = _FENCE.search(text)
    return fence.span(1) if fence else (0, len(text))


def mutations(source: str) -> list[Mutation]:
    """All changes of a source text that leave it a program, in the order of the text; none if it is not one."""
    if len(source) > MAX_SOURCE:
        return []
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    places = _Places(source)
    found = [m for node in ast.walk(tree) for m in _of_node(node, source, places)]
    found += [m for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for m in _names(node, places)]
    return sorted(found, key=lambda mutation: (mutation.replacement.start, mutation.kind, mutation.replacement.new))


class _Places:
    """Offsets in the text of the places that `ast` counts in lines and bytes."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        return self._starts[line - 1] + len(text.encode()[:column].decode(errors="ignore"))

    def of(self, node: ast.expr) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno or 0, node.end_col_offset or 0)


def _of_node(node: ast.AST, source: str, places: _Places) -> Iterator[Mutation]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _between(node.left, node.comparators[0], source, places, _COMPARISONS, "comparison")
    elif isinstance(node, ast.BinOp):
        yield from _between(node.left, node.right, source, places, _OPERATORS, "operator")
    elif isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value < 10**6:
        start, end = places.of(node)
        for value in (node.value + 1, node.value - 1):
            if value >= 0 and source[start:end] == str(node.value):
                yield Mutation("off_by_one", Replacement(start, end, str(value)), source[start:end])


def _between(
    left: ast.expr, right: ast.expr, source: str, places: _Places, table: dict[str, tuple[str, ...]], kind: str
) -> Iterator[Mutation]:
    """Changes of the sign between two operands, where nothing but space and brackets stands beside it."""
    start, end = places.of(left)[1], places.of(right)[0]
    found = re.fullmatch(r"([\s)]*)([-+*/%<>=!]+)([\s(]*)", source[start:end])
    if found is None:
        return
    at = start + len(found[1])
    for sign in table.get(found[2], ()):
        yield Mutation(kind, Replacement(at, at + len(found[2]), sign), found[2])


def _names(function: ast.FunctionDef, places: _Places) -> Iterator[Mutation]:
    """Uses of a function's variables as other variables of it."""
    arguments = [argument.arg for argument in function.args.args]
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    stored = [name.id for name in names if isinstance(name.ctx, ast.Store)]
    variables = sorted({*arguments, *stored})
    for name in names:
        if isinstance(name.ctx, ast.Load) and name.id in variables:
            start, end = places.of(name)
            for other in variables:
                if other != name.id:
                    yield Mutation("wrong_variable", Replacement(start, end, other), name.id)


def _by_kind(found: Sequence[Mutation], rng: random.Random) -> Iterator[Mutation]:
    """The changes in random order, kinds taking turns, so that the kind with most places does not crowd others out."""
    groups = {kind: [mutation for mutation in found if mutation.kind == kind] for kind in CODE_KINDS}
    order = list(CODE_KINDS)
    rng.shuffle(order)
    for group in groups.values():
        rng.shuffle(group)
    while any(groups.values()):
        for kind in order:
            if groups[kind]:
                yield groups[kind].pop()


def _injection(text: str, begin: int, mutation: Mutation) -> Injection:
    start, end, new = mutation.replacement
    edited = edit(text, [Replacement(begin + start, begin + end, new)])
    return Injection(
        1,
        mutation.kind,
        edited.text,
        edited.text,
        edited.spans_old,
        edited.spans_new,
        mutation.old,
        new,
        None,
        "tests",
    )
