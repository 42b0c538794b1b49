"""What one run of a command reads, does and writes: its records, its outputs, and their files."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_tools.errors import DataToolsError
from data_tools.reading import Record
from data_tools.shards import Shard

ROWS = "rows"
"""The output of a command that has only one."""


@dataclass(frozen=True)
class Row:
    """A record of the input: its id (given, or made of its content) and where it stands, for messages."""

    record: Record
    id: str
    file: str
    line: int

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Reject:
    """Something that gives no row: a reason to count it under, and a sentence. `line` and `id` are filled in."""

    reason: str
    detail: str = ""
    line: int | None = None
    id: str | None = None


@dataclass(frozen=True)
class Part:
    """A row for one of several output files."""

    name: str
    record: Record


Output = Record | Part | Reject
RecordFunction = Callable[[Row], Iterable[Output]]
StreamFunction = Callable[[Iterator[Row]], Iterable[Output]]


@dataclass(frozen=True)
class Job:
    """What one run reads and writes, and how."""

    command: str
    source: Path
    out: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    shard: Shard = field(default_factory=Shard)
    together: str | None = None
    """A column whose values are sharded in place of records."""
    distinct: bool = False
    """Whether ids must not repeat, since those of the rows are made of them."""
    columns: Mapping[str, str] = field(default_factory=dict)
    also: Sequence[Path] = ()
    parts: Sequence[str] = ()
    tally: Sequence[str] = ()
    strict: bool = False
    dry_run: bool = False
    overwrite: bool = False
    quiet: bool = False
    unanswered: Mapping[str, int] = field(default_factory=dict)
    """Filled while the command runs: requests to a model that had no answer and may have one another time."""

    @property
    def outputs(self) -> dict[str, Path]:
        """The output files by spool: one, or one for each part, named OUT's stem, the part, OUT's ending."""
        if not self.parts:
            return {ROWS: self.out}
        return {part: self.out.with_name(f"{self.out.stem}.{part}{self.out.suffix}") for part in self.parts}

    @property
    def rejects(self) -> Path:
        """The reject log."""
        return self.out.with_name(f"{self.out.name}.rejects.jsonl")

    @property
    def manifest(self) -> Path:
        """The manifest."""
        return self.out.with_name(f"{self.out.name}.manifest.json")


INCOMPLETE = "incomplete"
"""The state of a run that wrote its rows but would make more another time: the same command runs again."""


@dataclass(frozen=True)
class Summary:
    """What a run did."""

    counts: Mapping[str, Any]
    outputs: Sequence[str]
    state: str

    @property
    def written(self) -> int:
        """How many rows there are."""
        return int(self.counts["written"])


def require_source(job: Job) -> None:
    """Raises: `DataToolsError` for a source that is no file, or an output that is the source or of an unknown kind."""
    outputs = (*job.outputs.values(), job.rejects, job.manifest)
    for path in (job.source, *job.also):
        require_file(path)
    require_outputs(outputs, (job.source, *job.also))
    if job.out.suffix not in (".jsonl", ".ndjson", ".parquet"):
        raise DataToolsError(f"{job.out}: --out must end in .jsonl or .parquet.")


def require_file(path: Path) -> None:
    """Raises: `DataToolsError` for what is no file that can be read twice."""
    if path.is_file():
        require_name(path)
        return
    if str(path) == "-" or (path.exists() and not path.is_dir()):
        raise DataToolsError(f"{path}: is no file; it is read more than once, so it must be one.")
    raise DataToolsError(f"{path}: {'is a folder' if path.is_dir() else 'there is no such file'}.")


def require_outputs(outputs: Sequence[Path], sources: Sequence[Path]) -> None:
    """Raises: `DataToolsError` for outputs that are read as well, or have names that no manifest can hold."""
    taken = [out.resolve() for out in outputs]
    for out in outputs:
        require_name(out)
    for path in sources:
        if path.resolve() in taken:
            raise DataToolsError(f"{path}: is read, so it cannot be written as well. Give --out another name.")


def require_name(path: Path) -> None:
    """Raises: `DataToolsError` for a name that is no text, so that no manifest or log could tell it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise DataToolsError(f"{str(path)!a}: the name of the file is not UTF-8. Give it another.") from None
