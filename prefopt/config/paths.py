"""Which texts of a recipe are paths, and where they point."""

from __future__ import annotations

import os
from pathlib import Path

from prefopt.config.written import Written
from prefopt.demo import is_demo

DATA_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".txt", ".gz")
"""A data source that ends like this is a file, whether or not it exists; other names may be those of a hub."""

CACHES = ("auto", "off", "columns")
"""What `reference.cache` may say instead of a path."""


def with_absolute_paths(written: Written) -> Written:
    """Every relative path made absolute, from the folder of the file it was written in."""
    for path in (("model", "name_or_path"), ("model", "adapter", "start"), ("reference", "name_or_path")):
        written = written.map_text(path, model_place)
    train = written.get("data", "train")
    for index in range(len(train) if isinstance(train, list) else 0):
        written = _source(written, ("data", "train", index))
    written = _source(written, ("data", "train"))
    sets = written.get("data", "eval")
    for name in sets if isinstance(sets, dict) else ():
        written = _source(written, ("data", "eval", name))
    written = written.map_text(("data", "chat_template"), template_place)
    written = written.map_text(("reference", "cache"), cache_place)
    for name in ("output_dir", "deepspeed", "fsdp_config"):
        written = written.map_text(("training", name), absolute)
    return written


def _source(written: Written, path: tuple[str | int, ...]) -> Written:
    return written.map_text(path, data_place).map_text((*path, "path"), data_place)


def absolute(text: str, folder: Path) -> str:
    """The path, from `folder` when it is relative, without `..`."""
    return os.path.normpath(folder / Path(text).expanduser()) if text else text


def model_place(text: str, folder: Path) -> str:
    """A path when it looks like one or exists; a hub id or the name of a demonstration model stays as it is."""
    return absolute(text, folder) if not is_demo(text) and (_is_path(text) or _exists(text, folder)) else text


def data_place(text: str, folder: Path) -> str:
    """A path when it looks like one or exists; otherwise the id of a hub data set."""
    return absolute(text, folder) if is_file_name(text) or _exists(text, folder) else text


def cache_place(text: str, folder: Path) -> str:
    """A path, unless it is a word that says where to look."""
    return text if text in CACHES else absolute(text, folder)


def template_place(text: str, folder: Path) -> str:
    """A path when it ends like a template file, looks like a path or exists; otherwise a template's text."""
    if "\n" in text or "{" in text:
        return text
    return absolute(text, folder) if text.endswith((".jinja", ".j2", ".txt")) or _is_path(text) else text


def is_file_name(text: str) -> bool:
    """Whether a data source must be a file or folder of this machine."""
    return _is_path(text) or text.lower().endswith(DATA_SUFFIXES)


def _is_path(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~")) or text.count("/") > 1 or os.path.isabs(text)


def _exists(text: str, folder: Path) -> bool:
    try:
        return bool(text) and (folder / text).exists()
    except (OSError, ValueError):
        return False


def short(path: str | Path) -> str:
    """A path for a message: relative when it lies below the current folder."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)
