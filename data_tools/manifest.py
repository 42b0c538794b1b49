"""Where a file comes from: what is written beside every output. No times in it, so equal runs give equal files."""

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from data_tools.records import DataToolsError, Record, replacing

PACKAGES = ("prefopt-train", "pydantic", "rapidfuzz", "math-verify", "sympy", "pyarrow")


@dataclass(frozen=True)
class FileNote:
    """A file as a manifest names it."""

    path: str
    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path, name: str | None = None) -> "FileNote":
        """Reads the file once. Raises: `DataToolsError` if it cannot be read."""
        digest, size = hashlib.sha256(), 0
        try:
            with path.open("rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
                    size += len(piece)
        except OSError as error:
            raise DataToolsError(f"{path}: cannot be read: {error.strerror or error}") from error
        return cls(str(path) if name is None else name, size, digest.hexdigest())


@dataclass(frozen=True)
class Plan:
    """What decides the output of a run: equal plans give equal bytes."""

    command: str
    options: Mapping[str, Any]
    seed: int
    shard: str
    inputs: Sequence[FileNote]

    @property
    def key(self) -> str:
        """Names the plan and the code that carries it out."""
        text = json.dumps([asdict(self), code_digest(), versions()], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def manifest(plan: Plan, outputs: Sequence[FileNote], counts: Mapping[str, Any]) -> Record:
    """The content of a manifest."""
    return {
        "command": plan.command,
        "options": dict(plan.options),
        "seed": plan.seed,
        "shard": plan.shard,
        "inputs": [asdict(note) for note in plan.inputs],
        "outputs": [asdict(note) for note in outputs],
        "counts": dict(counts),
        "versions": versions(),
        "code": code_digest(),
        "key": plan.key,
    }


def write_manifest(path: Path, content: Record) -> None:
    """A manifest as readable JSON, written whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """The versions that a result may depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@lru_cache(maxsize=1)
def code_digest() -> str:
    """A hash of the sources of this package: what an earlier version began, another does not continue."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for file in sorted(root.rglob("*.py")):
        digest.update(str(file.relative_to(root)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
