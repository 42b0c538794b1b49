"""The run directory: what a training run leaves behind, and what everything after it reads.

`recipe.yaml` (resolved), `run.json` (versions, hashes, reference, plan), `data_report.json`, `metrics.jsonl` (one
object per logging step), `samples.jsonl`, `checkpoint-N/` (whole once it holds `prefopt_state.json`), and the final
model on top.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from prefopt.errors import ConfigError, RunError

RECIPE = "recipe.yaml"
RECORD = "run.json"
DATA_REPORT = "data_report.json"
METRICS = "metrics.jsonl"
SAMPLES = "samples.jsonl"
CHECKPOINT_STATE = "prefopt_state.json"
_OURS = (RECIPE, RECORD, DATA_REPORT, METRICS)


def write_text(path: Path, text: str) -> None:
    """Write a file whole: to a temporary name beside it, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole, indented, keys in the order given. NaN and infinities are refused."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=str, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Raises: `RunError` naming the file when it is missing or not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error


@dataclass(frozen=True)
class RunDirectory:
    """Paths, readers and writers of one run."""

    path: Path

    @classmethod
    def open(cls, path: Path, *, resume: bool = False, overwrite: bool = False) -> RunDirectory:
        """The directory of a new or continued run; created when missing, emptied when told to overwrite.

        Raises: `ConfigError` when it holds something and neither was asked for, or when it is not a run's directory.
        """
        check_output(path, resume=resume, overwrite=overwrite)
        if overwrite and path.is_dir() and not resume:
            shutil.rmtree(path)
        path.mkdir(parents=True, exist_ok=True)
        return cls(path)

    def checkpoints(self) -> list[Path]:
        """Whole checkpoints, oldest first. One that was cut off while it was written is not whole."""
        found = [
            (int(m[1]), p) for p in self.path.glob("checkpoint-*") if (m := re.fullmatch(r"checkpoint-(\d+)", p.name))
        ]
        return [p for _, p in sorted(found) if (p / CHECKPOINT_STATE).is_file()]

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """One more line of `metrics.jsonl`."""
        with (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, default=float) + "\n")

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of `metrics.jsonl`; a last line that was cut off is left out."""
        path = self.path / METRICS
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def forget_metrics_after(self, step: int) -> None:
        """Drop lines of steps that a resumed run is about to repeat."""
        kept = [row for row in self.metrics() if row.get("step", 0) <= step]
        write_text(self.path / METRICS, "".join(json.dumps(row) + "\n" for row in kept))

    def append_samples(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """More lines of `samples.jsonl`."""
        with (self.path / SAMPLES).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def check_output(path: Path, *, resume: bool = False, overwrite: bool = False) -> None:
    """Refuse an output folder that holds something, unless the run resumes or may overwrite it.

    Raises: `ConfigError`. Never overwrites a folder that no run of ours has written.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"training.output_dir: {path} is a file, not a folder.")
    if resume or not path.is_dir() or not any(path.iterdir()):
        return
    ours = any((path / name).is_file() for name in _OURS)
    if not overwrite:
        how = "Use --resume to continue it, --overwrite to start afresh, or another" if ours else "Choose another"
        raise ConfigError(f"training.output_dir: {path} exists and is not empty. {how} training.output_dir.")
    if not ours:
        raise ConfigError(
            f"training.output_dir: {path} holds files that no run of prefopt wrote; --overwrite leaves them alone."
        )


PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers", "deepspeed", "numpy")


def versions() -> dict[str, str]:
    """Versions of prefopt's distribution and of what it stands on, those that are installed."""
    found = {}
    for package in ("prefopt-train", *PACKAGES):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def source_commit() -> str | None:
    """The commit of prefopt's own checkout, with `+changes` when files differ from it; None outside a checkout."""
    folder = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=20
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != folder.parent:
            return None
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", str(folder)) else "")
    except (OSError, subprocess.SubprocessError):
        return None
