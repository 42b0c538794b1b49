"""Where records come from: text files, Parquet, saved data sets, the hub. All of them become a `Table`, read in pieces.

Text files are stored as they are, one JSON text per record, so that no two records have to have columns of the same
type.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, DatasetDict, Features, Value, load_dataset, load_from_disk
from datasets.arrow_writer import ArrowWriter

from prefopt.data import readers, rows
from prefopt.data.readers import TEXT_FORMATS, Record, read_numbered
from prefopt.errors import ConfigError, DataError, did_you_mean

logger = logging.getLogger(__name__)

_RECORD = "__record__"
_STORED = Features({_RECORD: Value("large_string")})
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_BINARY = (datasets.Image, datasets.Audio, datasets.Video)
_COLUMNS = rows.READ_COLUMNS


@dataclass(frozen=True)
class Source:
    """One source of records.

    `path` is a JSONL, JSON, Parquet or CSV file, a saved data set, or a hub id; `split`, `name` (a configuration) and
    `revision` belong to the last two. `columns` maps our column names to the source's. `weight` is how often a row of
    this source is seen per epoch: 2 repeats each row, 0.5 draws half of them.

    Raises: `DataError` for a column that records do not have, `ConfigError` for a weight that is not a number above 0.
    """

    path: str
    split: str | None = None
    name: str | None = None
    revision: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ConfigError(f"{self.path}: weight must be above 0 and finite; got {self.weight}.")
        known = (*_COLUMNS, *rows.ALIASES)
        problems = [
            f"{self.path}: columns: '{ours}' is not a column of a record.{did_you_mean(ours, known)} "
            f"Columns: {', '.join(known)}."
            for ours in self.columns
            if ours not in known
        ]
        if problems:
            raise DataError(*problems)

    def renamed(self, record: Mapping[str, Any]) -> Record:
        """The record under our column names. A column that is mapped away is not read under its own name as well."""
        taken = set(self.columns.values())
        kept = {name: value for name, value in record.items() if name not in taken and name not in self.columns}
        return kept | {ours: record[theirs] for ours, theirs in self.columns.items() if theirs in record}


@dataclass(frozen=True)
class Table:
    """Records of one source, on disk. `key` names their content: equal keys, equal records."""

    dataset: Dataset
    key: str
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.dataset)


def batch_records(batch: Mapping[str, list[Any]]) -> list[Record]:
    """Records of a batch of columns."""
    if list(batch) == [_RECORD]:
        return [json.loads(text) for text in batch[_RECORD]]
    names = list(batch)
    return [dict(zip(names, values, strict=True)) for values in zip(*batch.values(), strict=True)]


def open_table(source: Source, *, cache: Path | None = None) -> Table:
    """The source's records.

    Text files are checked whole and stored under `cache` once per content. Raises: `DataError` naming file and line.
    """
    path = Path(source.path)
    if path.is_file() and path.suffix in TEXT_FORMATS:
        for option in ("split", "name", "revision"):
            if getattr(source, option) is not None:
                raise DataError(f"{source.path}: is a file; `{option}` belongs to data sets.")
        return _stored(path, cache or cache_directory())
    dataset = _dataset(source, path)
    binary = [name for name, feature in dataset.features.items() if isinstance(feature, _BINARY)]
    dataset = dataset.remove_columns(binary)
    if not len(dataset):
        raise DataError(f"{source.path}: has no records.")
    return Table(dataset, key=str(dataset._fingerprint), skipped=tuple(binary))


def first_records(source: Source, count: int) -> list[Record]:
    """The first records of a source, under our column names. Text files are read no further than that."""
    path = Path(source.path)
    if path.is_file() and path.suffix in TEXT_FORMATS:
        return [source.renamed(record) for _, record in islice(read_numbered(path), count)]
    table = open_table(source)
    return [source.renamed(r) for r in batch_records(table.dataset[:count])]


def cache_directory() -> Path:
    """Where tokenized rows and stored records are kept: in the cache of `datasets`."""
    return Path(datasets.config.HF_DATASETS_CACHE) / "prefopt"


# ---------------------------------------------------------------------------------------------------- text files


def _stored(path: Path, cache: Path) -> Table:
    key = _digest(path)
    file = cache / f"records-{key}.arrow"
    if not file.is_file():
        _store(path, file)
    return Table(Dataset.from_file(str(file)), key=key)


def _digest(path: Path) -> str:
    """The file's content, and the code that reads it: what an earlier version stored is not taken for the same."""
    digest = hashlib.sha256(Path(readers.__file__).read_bytes())
    digest.update(path.suffix.encode())
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}.") from None
    return digest.hexdigest()[:32]


def _store(path: Path, file: Path) -> None:
    """Every record as JSON text in an Arrow file, written whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    os.close(handle)
    try:
        with ArrowWriter(path=temporary, features=_STORED) as writer:
            for _, record in read_numbered(path):
                writer.write({_RECORD: json.dumps(record)})
            writer.finalize()
        if not len(Dataset.from_file(temporary)):
            raise DataError(f"{path}: has no records.")
        os.replace(temporary, file)
    finally:
        Path(temporary).unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------------- data sets


def _dataset(source: Source, path: Path) -> Dataset:
    if path.is_dir() and ((path / "state.json").is_file() or (path / "dataset_dict.json").is_file()):
        found = _load(source, load_from_disk, str(path))
    elif path.suffix == ".parquet" and (path.is_file() or "*" in source.path):
        found = _load(source, load_dataset, "parquet", data_files=source.path, split=source.split or "train")
    elif path.is_dir() or _is_hub_id(path, source.path):
        found = _load(source, load_dataset, source.path, source.name, split=source.split, revision=source.revision)
    else:
        raise DataError(_not_readable(source, path))
    if isinstance(found, DatasetDict):
        found = _split(found, source)
    if not isinstance(found, Dataset):
        raise DataError(f"{source.path}: gives {type(found).__name__}, not a table of records.")
    return found


def _is_hub_id(path: Path, text: str) -> bool:
    """Whether a path that does not exist reads like `owner/name`, and not like a file in a folder that is there."""
    file = path.suffix in (*TEXT_FORMATS, ".parquet")
    return (
        not path.exists()
        and not file
        and bool(_HUB_ID.fullmatch(text))
        and (len(path.parts) < 2 or not path.parent.is_dir())
    )


def _load(source: Source, load: Any, *args: Any, **options: Any) -> Any:
    try:
        return load(*args, **options)
    except Exception as error:  # the library raises what its back ends raise: network, file system, Arrow, ValueError
        cause = error.__cause__ or error
        text = " ".join(str(cause).split()) or type(cause).__name__
        raise DataError(f"{source.path}: cannot be loaded: {text[:500]}") from error


def _split(found: DatasetDict, source: Source) -> Dataset:
    names = list(found)
    if source.split in found or (source.split is None and len(names) == 1):
        return found[source.split or names[0]]
    asked = f"has no split '{source.split}'" if source.split else "has several splits, and the recipe names none"
    raise DataError(f"{source.path}: {asked}. `split:` is one of {', '.join(names)}.")


def _not_readable(source: Source, path: Path) -> str:
    if path.exists():
        return (
            f"{source.path}: a file of this kind cannot be read. It must end in {', '.join(TEXT_FORMATS)} or .parquet."
        )
    folder = path.parent
    if not folder.is_dir():
        return f"{source.path}: does not exist; neither does the folder {folder}."
    return f"{source.path}: does not exist.{did_you_mean(path.name, [item.name for item in folder.iterdir()])}"
