"""Mistakes that a user can mend."""

from collections.abc import Iterable
from difflib import get_close_matches

NOT_GENERATED = "not_generated"
"""The reason for a reject where a dry run would have had to ask a model."""


class DataToolsError(ValueError):
    """A mistake in the data or in the arguments that a user can mend."""


class RecordError(DataToolsError):
    """A record that cannot be used; `reason` is the word that it is counted under."""

    def __init__(self, message: str, *, reason: str = "unusable") -> None:
        super().__init__(message)
        self.reason = reason


def closest(name: str, known: Iterable[str]) -> str:
    """A question after the known name that is most like another, to stand behind a sentence; empty if none is."""
    found = get_close_matches(name, known, n=1)
    return f" Did you mean '{found[0]}'?" if found else ""
