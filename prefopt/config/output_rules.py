"""Whether the output folder may be emptied: `--overwrite` deletes what lies in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefopt.config.paths import short
from prefopt.config.sections import DataSection, ModelSection, ReferenceSection
from prefopt.config.written import COMMAND, Written
from prefopt.errors import Problem
from prefopt.runs import RECIPE, RECORD

_PATH = ("training", "output_dir")


def output_holds_no_recipe(written: Written, training: dict[str, Any]) -> Iterator[Problem]:
    """The recipe that a run has written for itself may lie in its folder: `--resume` reads it there."""
    files = {where.folder / Path(where.source).name for where in written.places.values() if where.rank != COMMAND}
    file = written.file.folder / Path(written.file.source).name
    folder = Path(training.get("output_dir") or "")
    if _real(file) == _real(folder / RECIPE) and (folder / RECORD).is_file():
        files.discard(file)
    else:
        files.add(file)
    yield from _inside(training, "the recipe", sorted(files))


def output_holds_no_data(data: DataSection, training: dict[str, Any]) -> Iterator[Problem]:
    paths = [source.path for source in (*data.train, *data.eval.values())]
    yield from _inside(training, "the data", [Path(path) for path in dict.fromkeys(paths)])


def output_holds_no_model(model: ModelSection, training: dict[str, Any]) -> Iterator[Problem]:
    yield from _inside(training, "the model", [Path(model.name_or_path)])
    if model.adapter is not None and model.adapter.start is not None:
        yield from _inside(training, "the adapter", [Path(model.adapter.start)])


def output_holds_no_reference(reference: ReferenceSection, training: dict[str, Any]) -> Iterator[Problem]:
    if reference.name_or_path is not None:
        yield from _inside(training, "the reference", [Path(reference.name_or_path)])


def _inside(training: dict[str, Any], what: str, paths: list[Path]) -> Iterator[Problem]:
    """A problem when one of `paths` is the output folder or lies in it. Names that are no paths lie nowhere."""
    output = training.get("output_dir")
    if not output or Path(output).is_file():
        return
    folder = _real(Path(output))
    for path in paths:
        real = _real(path)
        if path.is_absolute() and (real == folder or folder in real.parents):
            place = f"is {what}" if real == folder else f"holds {what} ({short(path)})"
            yield Problem(
                f"training.output_dir: {short(output)} {place}; --overwrite may delete it. Name another folder.",
                _PATH,
            )
            return


def _real(path: Path) -> Path:
    """The path without symbolic links, as far as it exists."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):  # a text that no file can be named
        return path


OUTPUT_RULES = (output_holds_no_recipe, output_holds_no_data, output_holds_no_model, output_holds_no_reference)
