"""Mistakes a user can make, told in one readable paragraph.

`ConfigError` and `DataError` are `ValueError`s: the input was wrong and nothing ran (exit code 2).
`RunError` is what went wrong while running (exit code 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where.

    `path` is the place inside the settings, for instance `("loss", "beta")`; `place` is the place in a file,
    for instance `recipes/dpo.yaml:14`, once it is known.
    """

    text: str
    path: tuple[str | int, ...] = field(default=())
    place: str = ""

    def under(self, *prefix: str | int) -> Problem:
        """The same problem, seen from further up the tree."""
        return replace(self, path=(*prefix, *self.path))

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


class PrefoptError(Exception):
    """Base of every error that prefopt raises on purpose."""


class InputError(PrefoptError, ValueError):
    """The user's input was refused. Holds every problem that was found, not only the first."""

    def __init__(self, *problems: str | Problem) -> None:
        self.problems: tuple[Problem, ...] = tuple(Problem(p) if isinstance(p, str) else p for p in problems)
        super().__init__("\n".join(map(str, self.problems)))


class ConfigError(InputError):
    """A recipe, an option or a loss parameter is wrong."""


class DataError(InputError):
    """The data cannot be used as they are."""


class RunError(PrefoptError, RuntimeError):
    """Something went wrong while running."""


class NonFiniteError(RunError):
    """A NaN or an infinity where a number must be. `rows` are positions in the batch."""

    def __init__(self, text: str, *, rows: Sequence[int] = ()) -> None:
        self.rows = tuple(rows)
        super().__init__(text)


def did_you_mean(word: str, known: Iterable[str], *, closeness: float = 0.5) -> str:
    """` Did you mean 'lam'?` with a leading space, or nothing when no known word is close."""
    matches = get_close_matches(word.lower(), list(known), n=1, cutoff=closeness)
    return f" Did you mean '{matches[0]}'?" if matches else ""
