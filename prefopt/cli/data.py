"""`prefopt data ...` is `python -m data_tools ...`."""

from __future__ import annotations

from collections.abc import Sequence

from data_tools.cli import main


def data(arguments: Sequence[str]) -> int:
    """Run a data command and return its exit code."""
    return main(arguments)
