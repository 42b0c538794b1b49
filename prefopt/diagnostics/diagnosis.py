"""A diagnosis of a data set: before training the pairs' scores, after it how they moved, as files in one folder."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerBase

from prefopt.diagnostics.items import WINDOW
from prefopt.diagnostics.kept import KEPT, REMOVED, RowScores, write_kept
from prefopt.diagnostics.measures import Measure, Movements, Similarities, pair_facts, together
from prefopt.diagnostics.parts import FOLDER, Parts, Progress
from prefopt.diagnostics.processes import Processes
from prefopt.diagnostics.records import PairRows
from prefopt.diagnostics.states import StateReader
from prefopt.diagnostics.summary import PairNumbers
from prefopt.diagnostics.table import LINES, PARQUET, PairTable
from prefopt.errors import ConfigError
from prefopt.runs import versions, write_json
from prefopt.scoring.modes import evaluating
from prefopt.scoring.policy import Scorer

logger = logging.getLogger(__name__)

SUMMARY, REPORT = "summary.json", "report.html"
MARKER = "diagnosis"
"""The key of `summary.json` that says a folder is a diagnosis's."""

_WRITTEN = (
    SUMMARY,
    PARQUET,
    LINES,
    REPORT,
    "report.md",
    KEPT,
    REMOVED,
    f".{PARQUET}.unfinished",
    f".{LINES}.unfinished",
)
TRUNCATED = "truncated"


@dataclass(frozen=True)
class Subject:
    """What is diagnosed: the model that training starts from, and after training the one it came to.

    `identity` says for `start`, and where there is one for `policy`, which model that is (name, fingerprint, dtype).
    """

    start: nn.Module
    tokenizer: PreTrainedTokenizerBase
    pairs: PairRows
    identity: Mapping[str, Any]
    policy: nn.Module | None = None


@dataclass(frozen=True)
class Settings:
    """`batch_tokens`: tokens in a batch, padding included. `keep_lowest`: share of records to keep, those with the
    lowest score `keep_lowest_by`; None filters nothing. `data`: the options that made rows of records, for the record.
    """

    batch_tokens: int = 4096
    keep_lowest: float | None = None
    keep_lowest_by: str = "ln_ches"
    data: Mapping[str, Any] = field(default_factory=dict)


def check_folder(folder: Path, *, overwrite: bool = False) -> None:
    """Raises: `ConfigError` for a folder with other things in it, or with a finished diagnosis to be kept."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out: {folder} is a file, not a folder.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    unfinished = (folder / FOLDER).is_dir()
    if not unfinished and not _is_diagnosis(folder):
        raise ConfigError(
            f"--out: {folder} holds files and is no diagnosis, so it is left alone. Choose another folder."
        )
    if not unfinished and not overwrite:
        raise ConfigError(f"--out: {folder} holds a finished diagnosis. --overwrite replaces it.")


def _is_diagnosis(folder: Path) -> bool:
    try:
        return MARKER in json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def diagnose(
    subject: Subject,
    folder: Path,
    settings: Settings,
    *,
    processes: Processes | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any] | None:
    """Measure every pair and write `pairs.parquet`, `pairs.jsonl` and `summary.json`; with a filter also its records.

    An unfinished diagnosis of the same data, models and settings is continued. Gives the summary in the first process,
    None in the others.
    Raises: `ConfigError` for a folder that must be left alone.
    """
    processes = processes or Processes()
    parts = Parts(folder / FOLDER, subject.pairs.table, settings.batch_tokens)
    with processes.first_then_others():
        if processes.first:
            check_folder(folder, overwrite=overwrite)
            if overwrite:
                shutil.rmtree(folder / FOLDER, ignore_errors=True)
            parts.open(_key(subject, settings))
            for name in _WRITTEN:
                (folder / name).unlink(missing_ok=True)
    models = [model for model in (subject.start, subject.policy) if model is not None]
    with evaluating(*models):
        parts.measure(_measure(subject), rank=processes.rank, world=processes.world, progress=progress)
    processes.wait()
    return _finished(subject, folder, settings, parts) if processes.first else None


def _key(subject: Subject, settings: Settings) -> dict[str, Any]:
    """What decides the content of the parts."""
    return {
        "models": dict(subject.identity),
        "data": subject.pairs.audit.fingerprint,
        "settings": {"batch_tokens": settings.batch_tokens, "window": WINDOW},
        "version": {name: versions().get(name) for name in ("prefopt-train", "torch", "transformers")},
    }


def _measure(subject: Subject) -> Measure:
    scorer = Scorer()
    measures: list[Measure] = [pair_facts, Similarities(StateReader(subject.start, scorer))]
    if subject.policy is not None:
        measures.append(Movements(subject.policy, subject.start, scorer))
    return together(*measures)


def _finished(subject: Subject, folder: Path, settings: Settings, parts: Parts) -> dict[str, Any]:
    """The parts as files; the summary comes last."""
    pairs, numbers = subject.pairs, PairNumbers()
    scores = RowScores.of(len(pairs.table), settings.keep_lowest_by)
    start = 0
    with PairTable(folder, subject.tokenizer, moved=subject.policy is not None) as table:
        for window, records in parts.merged():
            for record in records:
                if record["row"] in pairs.cut:
                    record["flags"].append(TRUNCATED)
            written = table.add(window, records, start=start)
            numbers.add(written)
            scores.add(written, [record["row"] for record in records])
            start += len(window)
    summary = _summary(subject, settings, numbers)
    if settings.keep_lowest is not None:
        summary["filter"] = write_kept(folder, pairs, scores, settings.keep_lowest)
    write_json(folder / SUMMARY, summary)
    parts.remove()
    return summary


def _summary(subject: Subject, settings: Settings, numbers: PairNumbers) -> dict[str, Any]:
    audit = subject.pairs.audit
    found: dict[str, Any] = {
        MARKER: "movement" if subject.policy is not None else "scores",
        "rows": len(subject.pairs.table),
        "pairs": len(numbers),
        "flags": dict(sorted(numbers.flags.items())),
        "scores": numbers.scores(),
        "spearman_with_length_gap": numbers.length_bias(),
    }
    if subject.policy is not None:
        found["movement"] = numbers.movement()
    return found | {
        "data": {
            "sources": [dict(source) for source in audit.sources],
            "read": audit.read,
            "kept": audit.kept,
            "lost": audit.counts,
            "notes": dict(audit.notes),
            "fingerprint": audit.fingerprint,
        },
        "models": dict(subject.identity),
        "settings": asdict(settings) | {"data": dict(settings.data)},
        "versions": versions(),
    }
