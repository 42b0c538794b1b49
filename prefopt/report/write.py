"""From folders to files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefopt.errors import ConfigError
from prefopt.report.content import Report, report
from prefopt.report.folders import read
from prefopt.report.markdown import MARK as MARKDOWN_MARK
from prefopt.report.markdown import markdown
from prefopt.report.page import MARK as PAGE_MARK
from prefopt.report.page import page
from prefopt.runs import write_text

PAGE, MARKDOWN = "report.html", "report.md"
_FORMS = {".html": (page, PAGE_MARK), ".md": (markdown, MARKDOWN_MARK)}


def build_report(folders: Sequence[Path]) -> Report:
    """What there is to show of run directories and folders of `prefopt diagnose`, without writing it.

    Raises: `ConfigError` for a folder that is neither, `RunError` for a damaged file.
    """
    return report(read(folders))


def write_report(folders: Sequence[Path], out: Path, *, found: Report | None = None) -> list[Path]:
    """Write a report; gives back its files.

    `out` is a file ending in .html or .md, or a folder, which then gets `report.html` and `report.md`. A report that is
    there already is replaced; any other file is left alone. `found` spares reading the folders again.
    Raises: as `build_report`; `ConfigError` for an `out` that cannot be written.
    """
    files = _files(out)
    for file in files:
        _check(file)
    found = found or build_report(folders)
    for file in files:
        try:
            write_text(file, _FORMS[file.suffix][0](found))
        except OSError as error:
            raise ConfigError(f"--out: {file} cannot be written: {error.strerror or error}.") from error
    return files


def _files(out: Path) -> list[Path]:
    if out.is_dir() or not out.suffix:
        return [out / PAGE, out / MARKDOWN]
    if out.suffix not in _FORMS:
        raise ConfigError(f"--out: {out} ends in '{out.suffix}'. A report is a folder, or a file in .html or .md.")
    return [out]


def _check(file: Path) -> None:
    """Raises: `ConfigError` for a file that is no report of ours."""
    if file.is_dir():
        raise ConfigError(f"--out: {file} is a folder.")
    if not file.exists():
        return
    with file.open("rb") as opened:
        start = opened.read(400)
    if _FORMS[file.suffix][1].encode() not in start:
        raise ConfigError(f"--out: {file} exists and is no report of prefopt, so it is left alone.")
