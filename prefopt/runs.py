"""The run directory: what a training run leaves behind, and what everything after it reads.

`recipe.yaml` (resolved), `run.json` (versions, hashes, reference, plan), `data_report.json`, `metrics.jsonl` (one
object per logging step), `samples.jsonl`, `diagnostics/` (the probe set at the start and after some steps),
`checkpoint-N/` (whole once it holds `prefopt_state.json`), and the final model on top.
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
DIAGNOSTICS = "diagnostics"
CHECKPOINT_STATE = "prefopt_state.json"
MARKER = "prefopt"
"""The key of `run.json` that says a folder is a run's."""
_WRITTEN = (
    RECIPE,
    RECORD,
    DATA_REPORT,
    METRICS,
    SAMPLES,
    "README.md",
    "trainer_state.json",
    "report.html",
    "report.md",
    DIAGNOSTICS,
    "checkpoint-*",
    ".final",
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "adapter_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template.*",
)
"""What a run leaves on top of its directory: the only things that overwriting it removes."""


def write_text(path: Path, text: str) -> None:
    """Write a file whole: to a temporary name beside it, then rename."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """As `write_text`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
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


def probe_file(step: int) -> str:
    """The table of probes after a step; by name in the order of steps."""
    return f"probes-{step:08d}.parquet"


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
            _clear(path)
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
        return _lines(self.path / METRICS)

    def forget_after(self, step: int) -> None:
        """Drop metrics, samples and probes of steps that a resumed run is about to repeat."""
        for file in (self.path / DIAGNOSTICS).glob("probes-*.parquet"):
            if file.name > probe_file(max(step, 0)) or step < 0:
                file.unlink()
        for name in (METRICS, SAMPLES):
            if (self.path / name).is_file():
                kept = [row for row in _lines(self.path / name) if row.get("step", 0) <= step]
                write_text(self.path / name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept))

    def append_samples(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """More lines of `samples.jsonl`."""
        with (self.path / SAMPLES).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def check_output(path: Path, *, resume: bool = False, overwrite: bool = False) -> None:
    """Refuse an output folder that holds something, unless it is a run's and may be continued or overwritten.

    Raises: `ConfigError`. A folder that no run of ours has written is never touched.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"training.output_dir: {path} is a file, not a folder.")
    if not path.is_dir() or not any(path.iterdir()):
        return
    if not _is_run(path):
        raise ConfigError(
            f"training.output_dir: {path} holds files and is no run of prefopt, so it is left alone. "
            "Choose another folder."
        )
    if not resume and not overwrite:
        raise ConfigError(
            f"training.output_dir: {path} exists and is not empty. Use --resume to continue it, --overwrite to start "
            "afresh, or another training.output_dir."
        )


def _is_run(path: Path) -> bool:
    """Whether prefopt wrote the folder, by the marker in its record."""
    try:
        return MARKER in json.loads((path / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _clear(path: Path) -> None:
    """Remove what a run left, and nothing else."""
    for pattern in _WRITTEN:
        for found in path.glob(pattern):
            shutil.rmtree(found) if found.is_dir() and not found.is_symlink() else found.unlink()


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
