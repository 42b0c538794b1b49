"""YAML, base and overrides -> `Recipe`, with every mistake told at once, where it was written."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from prefopt.config.check import Draft, check_draft
from prefopt.config.document import Place
from prefopt.config.foreign import advice
from prefopt.config.paths import with_absolute_paths
from prefopt.config.recipe import Recipe, bind
from prefopt.config.sections import SECTIONS, Section
from prefopt.config.training import NAMES as TRAINING_NAMES
from prefopt.config.training import training_problems
from prefopt.config.written import Overrides, Written, read_written
from prefopt.errors import ConfigError, Problem
from prefopt.losses import Objective
from prefopt.params import KeyPath, problems, shown, unknown_option

NAMES = ("base", "model", "reference", "data", "loss", "scoring", "safety", "evaluation", "diagnostics", "training")
"""Top-level names of a recipe file, in the order in which they are usually written."""

_EXAMPLES = {"model": "name_or_path", "data": "train", "training": "output_dir", "reference": "source"}


def load_recipe(path: str | Path, overrides: Overrides = ()) -> Recipe:
    """Read and check a recipe. Nothing is loaded, and neither torch nor transformers is imported.

    `overrides` are `key=value` texts, as on the command line, or a mapping of dotted keys to values. Relative paths are
    relative to the file they stand in, in overrides to the current folder.

    Raises: `ConfigError` with every problem, in the order of file and line.
    """
    file = Path(path).expanduser()
    written = with_absolute_paths(read_written(file, overrides))
    sections, found = _sections(written)
    training, training_found = _training(written)
    objective, loss_found = _objective(written)
    found += training_found + loss_found
    draft = Draft(written=written, objective=objective, training=training, **_readable(written, sections))
    findings = check_draft(draft)
    told = {problem.path for problem in found}
    found += [problem for problem in findings.problems if problem.path not in told]
    if found or written.twice:
        raise ConfigError(*_placed(found, written, written.twice))
    parts: dict[str, Any] = {**sections, "loss": _losses(written.data["loss"]), "training": training}
    recipe = Recipe(**parts)
    recipe._source_path = file
    recipe._warnings = tuple(map(str, _placed(findings.warnings, written)))
    return recipe


def _objective(written: Written) -> tuple[Objective | None, list[Problem]]:
    if written.has("loss"):
        return bind(written.data["loss"])
    return None, [Problem("loss.name is required and not given; `prefopt losses` lists the names.", ("loss",))]


def _losses(value: Any) -> tuple[dict[str, Any], ...]:
    return tuple(dict(item) for item in value) if isinstance(value, list) else (dict(value),)


def _sections(written: Written) -> tuple[dict[str, Section], list[Problem]]:
    """The sections that are in order, and what is wrong with the others and with the names of sections."""
    strange = [name for name in written.data if name not in NAMES]
    found = [Problem(advice((name,)) or unknown_option((name,), set(NAMES)), (name,)) for name in strange]
    good: dict[str, Section] = {}
    for name, model in SECTIONS.items():
        value = written.data.get(name)
        if value is not None and not isinstance(value, Mapping):
            found.append(_no_mapping(name, value))
            continue
        try:
            good[name] = model.model_validate(value or {})
        except ValidationError as error:
            found += problems(error, model, rename=partial(_below, written, name), advice=advice)
    return good, found


def _below(written: Written, name: str, path: KeyPath) -> KeyPath:
    return written.as_written((name, *path))


def _no_mapping(name: str, value: Any) -> Problem:
    key = _EXAMPLES.get(name)
    hint = f" Write `{name}: {{{key}: {value}}}`." if key and isinstance(value, str) else ""
    return Problem(f"{name} must be a mapping; got {shown(value)}.{hint}", (name,))


def _training(written: Written) -> tuple[dict[str, Any] | None, list[Problem]]:
    value = written.data.get("training")
    if value is not None and not isinstance(value, Mapping):
        return None, [_no_mapping("training", value)]
    good, found = training_problems(value or {})
    placed = [problem.under("training") for problem in found]
    told = [None if problem.path[-1] in TRAINING_NAMES else advice(problem.path) for problem in placed]
    return good, [replace(problem, text=text or problem.text) for problem, text in zip(placed, told, strict=True)]


def _readable(written: Written, good: Mapping[str, Section]) -> dict[str, Any]:
    """The sections for the rules. Data with a wrong option still name files, so they are read without that option."""
    sections = {name: good.get(name) for name in ("model", "reference", "data", "evaluation")}
    value = written.data.get("data")
    if sections["data"] is None and isinstance(value, Mapping):
        sections["data"] = _without_mistakes(SECTIONS["data"], value)
    return sections


def _without_mistakes(model: type[Section], value: Mapping[str, Any]) -> Section | None:
    rest: dict[str, Any] = copy.deepcopy(dict(value))
    try:
        return model.model_validate(rest)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            _drop(rest, detail["loc"])
    try:
        return model.model_validate(rest)
    except ValidationError:
        return None


def _drop(data: dict[str, Any], path: KeyPath) -> None:
    """Remove what stands at `path`, or the part around it that exists."""
    current: Any = data
    holder, name = data, str(path[0])
    for part in path:
        if isinstance(current, dict) and part in current:
            holder, name, current = current, str(part), current[part]
        elif isinstance(current, list) and isinstance(part, int) and part < len(current):
            current = current[part]
        elif not isinstance(part, int):  # an index into a single source leads nowhere and does no harm
            break
    holder.pop(name, None)


def _placed(found: list[Problem], written: Written, twice: Sequence[tuple[Place, str]] = ()) -> list[Problem]:
    """Problems with file and line, sorted by them, none twice; keys that stand `twice` know their place."""
    paths: list[tuple[Any, Problem]] = [((where, text), Problem(text, place=str(where))) for where, text in twice]
    for problem in found:
        path: KeyPath = written.as_written(problem.path)
        where = written.place(path)
        paths.append(((where, problem.text), replace(problem, path=path, place=str(where))))
    unique = dict(paths)
    return [unique[key] for key in sorted(unique)]
