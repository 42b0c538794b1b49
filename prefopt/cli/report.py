"""`prefopt report`: runs and diagnoses side by side, as a page and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from prefopt.report import Report, build_report, write_report


def report(folders: Sequence[Path], out: Path | None, *, as_json: bool = False) -> None:
    """Write a report and print its headlines. Without `out` one column goes into its run's folder, several go here.

    Raises: `ConfigError`, `RunError` for folders that give no report.
    """
    found = build_report(folders)
    files = write_report(folders, out or _home(found), found=found)
    if as_json:
        print(json.dumps(_plain(found, files), indent=2, ensure_ascii=False))
        return
    for column in found.columns:
        print(f"{column.name}: {column.findings.verdict}")
        for line in (*column.findings.sentences, *column.notes):
            print(f"  {line}")
    print("written to " + " and ".join(map(str, files)))


def _home(found: Report) -> Path:
    if len(found.columns) > 1:
        return Path()
    evidence = found.columns[0].evidence
    home = evidence.run or evidence.pairs
    assert home is not None
    return home.path


def _plain(found: Report, files: Sequence[Path]) -> dict[str, object]:
    columns = [
        {
            "name": column.name,
            "verdict": column.findings.verdict,
            "claims": [asdict(claim) for claim in column.findings.claims],
            "notes": list(column.notes),
        }
        for column in found.columns
    ]
    return {"columns": columns, "files": [str(file) for file in files]}
