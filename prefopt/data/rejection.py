"""A record that gives no row: as a value, and as the exception that carries it up to whoever asked for the row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rejection:
    """Why a record gives no row: one of `rows.REASONS`, and the particulars in a few words."""

    reason: str
    detail: str


class RejectedError(Exception):
    """Raised below `read_example` and `Encoder`, caught there; `rejection` says why."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.rejection = Rejection(reason, detail)
