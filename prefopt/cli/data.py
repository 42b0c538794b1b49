"""`prefopt data ...` is `python -m data_tools ...`, with models on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from data_tools.cli import main
from data_tools.generators import register_generator

if TYPE_CHECKING:
    from data_tools.generators import Generator, GeneratorOptions


def data(arguments: Sequence[str]) -> int:
    """Run a data command and return its exit code."""
    register_generator("local", _local)
    return main(arguments, name="prefopt data")


def _local(options: GeneratorOptions) -> Generator:
    from prefopt.train.local_generator import open_local  # torch, only when a model is asked for

    return open_local(options)
