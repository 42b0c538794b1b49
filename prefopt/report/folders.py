"""Folders that a report is made of: run directories of training, and what `prefopt diagnose` wrote.

Whatever is missing or damaged is a sentence about that file, never a report with holes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from prefopt.errors import ConfigError, RunError
from prefopt.report.estimates import Groups, Reals
from prefopt.runs import MARKER, METRICS, RECIPE, RECORD, RunDirectory, read_json

SUMMARY, PAIRS = "summary.json", "pairs.parquet"
DIAGNOSIS = "diagnosis"
"""The key of `summary.json` that says a folder is a diagnosis's."""
TEXTS = ("prompt", "chosen", "rejected")
_KEYS = ("id", "flag", *TEXTS)
_NUMBERS = ("ln_ches", "chosen_tokens", "rejected_tokens", "edit_distance", "length_gap")
_MOVED = ("chosen_delta", "rejected_delta")


@dataclass(frozen=True)
class Run:
    """A training run: its record, its settings with dotted names, and the lines of `metrics.jsonl`."""

    path: Path
    record: Mapping[str, Any]
    settings: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pairs:
    """A diagnosis: its summary and its table, numbers as float64 `[N]` with NaN where a pair has none.

    `groups` `[N]` numbers the prompt of each pair. Texts stay in the file until `rows` asks for some.
    """

    path: Path
    summary: Mapping[str, Any]
    numbers: Mapping[str, Reals] = field(repr=False)
    groups: Groups = field(repr=False)
    ids: Sequence[str] = field(repr=False)
    flagged: np.ndarray[Any, np.dtype[np.bool_]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def moved(self) -> bool:
        """Whether it is a diagnosis after training."""
        return "movement" in self.summary

    def rows(self, places: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Whole rows of the table by their place in it, read one row group at a time."""
        wanted = sorted(set(places))
        found: dict[int, dict[str, Any]] = {}
        with pq.ParquetFile(self.path / PAIRS) as file:
            start = 0
            for number in range(file.num_row_groups):
                end = start + file.metadata.row_group(number).num_rows
                inside = [place for place in wanted if start <= place < end]
                if inside:
                    taken = file.read_row_group(number).take([place - start for place in inside])
                    found |= dict(zip(inside, taken.to_pylist(), strict=True))
                start = end
        return found


@dataclass(frozen=True)
class Evidence:
    """What one column of a report stands on: a run, a diagnosis, or a run with the diagnosis of its movement."""

    name: str
    run: Run | None = None
    pairs: Pairs | None = None


def read(folders: Sequence[Path]) -> list[Evidence]:
    """The evidence in folders, in their order; a diagnosis of a run that is among them joins it.

    Raises: `ConfigError` for a folder that is neither a run's nor a diagnosis's, `RunError` for damaged files.
    """
    if not folders:
        raise ConfigError("name at least one run directory or folder of prefopt diagnose.")
    paths = list(dict.fromkeys(folder.resolve() for folder in folders))
    opened = [_open(path) for path in paths]
    diagnosed = {found.path: place for place, found in enumerate(opened) if isinstance(found, Run)}
    joined: dict[int, Pairs] = {}
    alone: list[int] = []
    for place, found in enumerate(opened):
        run = _run_of(found, diagnosed) if isinstance(found, Pairs) else None
        if isinstance(found, Pairs) and run is not None and run not in joined:
            joined[run] = found
        else:
            alone.append(place)
    names = _names(paths)
    return [
        Evidence(names[place], run=found, pairs=joined.get(place))
        if isinstance(found := opened[place], Run)
        else Evidence(names[place], pairs=found)
        for place in alone
    ]


def _run_of(pairs: Pairs, runs: Mapping[Path, int]) -> int | None:
    policy = pairs.summary.get("models", {}).get("policy", {}).get("name_or_path")
    return runs.get(Path(policy).resolve()) if policy else None


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest end of each path that no other one has, at most four folders."""
    for depth in range(1, 5):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            break
    return names


def _open(path: Path) -> Run | Pairs:
    if not path.is_dir():
        raise ConfigError(f"{path} is not a folder. A report is made of run directories and folders of diagnose.")
    if (path / RECORD).is_file():
        return _open_run(path)
    if (path / SUMMARY).is_file():
        return _open_pairs(path)
    raise ConfigError(
        f"{path} is neither a run directory (it has no {RECORD}) nor a finished diagnosis (it has no {SUMMARY})."
    )


def _open_run(path: Path) -> Run:
    record = read_json(path / RECORD)
    if not isinstance(record, dict) or MARKER not in record:
        raise ConfigError(f"{path / RECORD} is not the record of a prefopt run.")
    _check_tables(path / RECORD, record, ("plan",))
    try:
        recipe = YAML(typ="safe").load((path / RECIPE).read_text(encoding="utf-8"))
    except (OSError, ValueError, YAMLError) as error:
        raise RunError(f"{path / RECIPE} cannot be read: {_first_line(error)}") from error
    if not isinstance(recipe, dict):
        raise RunError(f"{path / RECIPE} holds no settings.")
    try:
        written = sum(bool(line.strip()) for line in (path / METRICS).read_text(encoding="utf-8").splitlines())
        metrics = [line for line in RunDirectory(path).metrics() if isinstance(line, dict)]
    except (OSError, ValueError) as error:
        raise RunError(f"{path / METRICS} cannot be read: {_first_line(error)}") from error
    if not metrics:
        raise RunError(f"{path / METRICS} has no line that can be read: nothing was logged, or it is damaged.")
    lost = written - len(metrics)
    notes = (f"{lost} of {written} lines of {METRICS} cannot be read and are left out.",) if lost else ()
    return Run(path, record, flat(recipe), metrics, notes)


def _open_pairs(path: Path) -> Pairs:
    summary = read_json(path / SUMMARY)
    if not isinstance(summary, dict) or DIAGNOSIS not in summary:
        raise ConfigError(f"{path / SUMMARY} was not written by prefopt diagnose.")
    _check_tables(path / SUMMARY, summary, ("movement", "data", "models", "spearman_with_length_gap"))
    try:
        with pq.ParquetFile(path / PAIRS) as file:
            names = file.schema_arrow.names
            table = file.read(columns=[name for name in names if name not in TEXTS[1:]])
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"{path / PAIRS} cannot be read: {_first_line(error)}. {_AGAIN}") from error
    wanted = (*_KEYS, *_NUMBERS, *(_MOVED if "movement" in summary else ()))
    missing = [name for name in wanted if name not in names]
    if missing:
        raise RunError(f"{path / PAIRS} has no column '{missing[0]}'. {_AGAIN}")
    if table.num_rows != summary.get("pairs"):
        raise RunError(
            f"{path / PAIRS} has {table.num_rows:,} pairs and {SUMMARY} speaks of {summary.get('pairs')}: they are not "
            f"of one diagnosis. {_AGAIN}"
        )
    if not table.num_rows:
        raise RunError(f"{path} is a diagnosis without any pair, so there is nothing to report.")
    numbers = {field.name: _reals(table[field.name]) for field in table.schema if _is_number(field.type)}
    _check_movement(path, summary, numbers)
    prompts = table["prompt"].fill_null("").combine_chunks().dictionary_encode()
    return Pairs(
        path,
        summary,
        numbers,
        np.asarray(prompts.indices.to_numpy(zero_copy_only=False), dtype=np.int64),
        [str(name) for name in table["id"].to_pylist()],
        np.asarray([bool(flag) for flag in table["flag"].to_pylist()], dtype=np.bool_),
    )


def _check_movement(path: Path, summary: Mapping[str, Any], numbers: Mapping[str, Reals]) -> None:
    """Raises: `RunError` for movements that are no numbers, or that the summary was not made of."""
    if "movement" not in summary:
        return
    lost = sum(int((~np.isfinite(numbers[name])).sum()) for name in _MOVED)
    if lost:
        raise RunError(
            f"{path / PAIRS}: of the movements {lost:,} are no finite numbers. One of the models gives NaN or infinity "
            "for those pairs, and there is nothing to average."
        )
    told, found = summary["movement"].get("chosen_dropped"), float((numbers["chosen_delta"] < 0).mean())
    if isinstance(told, float) and abs(told - found) > 1e-9:
        raise RunError(
            f"{path / SUMMARY} says that {told:.1%} of chosen responses fell, and in {PAIRS} it is {found:.1%}: they "
            f"are not of one diagnosis. {_AGAIN}"
        )


def _check_tables(path: Path, content: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises: `RunError` where something else stands in the place of a table of values."""
    for name in names:
        if not isinstance(content.get(name, {}), dict):
            raise RunError(f"{path} is damaged: '{name}' is not a table of values.")


_AGAIN = "prefopt diagnose with --overwrite makes it again."


def _is_number(kind: pa.DataType) -> bool:
    return any(holds(kind) for holds in (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean))


def _reals(column: pa.ChunkedArray) -> Reals:
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names; lists of settings are numbered."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        path = f"{prefix}{name}"
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            value = {str(number): item for number, item in enumerate(value)}
        if isinstance(value, dict) and value:
            found |= flat(value, f"{path}.")
        else:
            found[path] = value
    return found
