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


def read_manifest(path: Path) -> Record | None:
    """A manifest that was written here; None for anything else, or nothing."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    right = isinstance(found, dict) and isinstance(found.get("key"), str) and isinstance(found.get("outputs"), list)
    notes = found["outputs"] if right else []
    if not right or not all(isinstance(note, dict) and {"path", "sha256"} <= set(note) for note in notes):
        return None
    return dict(found)


def made(path: Path, key: str) -> Record | None:
    """The manifest of an earlier run with the plan of that key whose outputs are still there, unchanged."""
    found = read_manifest(path)
    if found is None or found["key"] != key:
        return None
    for note in found["outputs"]:
        file = path.with_name(note["path"])
        if not file.is_file() or FileNote.of(file).sha256 != note["sha256"]:
            return None
    return found


def refuse_foreign(path: Path, key: str, outputs: Sequence[Path]) -> None:
    """Raises: `DataToolsError` if an output, or the manifest at `path`, is there and another run's, or nobody's.

    A manifest whose outputs are all gone is no loss.
    """
    taken, found = [output for output in outputs if output.exists()], read_manifest(path)
    if taken:
        if made(path, key) is None:
            says = "was changed since this command made it" if _is(found, key) else "was not made by this command"
            raise DataToolsError(f"{taken[0]}: exists and {says}. --overwrite replaces it.")
        return
    if found is None and path.exists():
        raise DataToolsError(f"{path}: exists and is no manifest. --overwrite replaces it.")
    for note in [] if found is None or _is(found, key) else found["outputs"]:
        if path.with_name(note["path"]).exists():
            raise DataToolsError(
                f"{path}: is the manifest of another run, which made {note['path']}. Give --out another name; "
                "--overwrite replaces the manifest."
            )


def _is(found: Record | None, key: str) -> bool:
    return found is not None and found["key"] == key


def refuse_folders(*paths: Path) -> None:
    """Raises: `DataToolsError` for a file to write where there is a folder."""
    for path in paths:
        if path.is_dir():
            raise DataToolsError(f"{path}: is a folder, so no file of that name can be written.")


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
