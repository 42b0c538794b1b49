"""What all tests share: no model hub, and real models and data where a checkout has them beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
    os.environ.setdefault(name, "1")  # before any test imports a library that reads them
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).parents[1]
CONTRACT = re.compile(r"tests/losses/test_contract\.py::test_contract\[(\w+)-(\w+)\]$")
ASSETS = ROOT.parent / "shared" / "assets"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of references that the machine may hold serve no test."""
    monkeypatch.setenv("PREFOPT_CACHE", str(tmp_path_factory.getbasetemp() / "no-caches"))


@pytest.fixture(scope="session")
def asset() -> Callable[[str], Path]:
    """`asset("models/stories260k")`: the path of a real model, tokenizer or data set; skips where there is none."""

    def find(name: str) -> Path:
        path = ASSETS / name
        if not path.exists():
            pytest.skip(f"needs {name} in {ASSETS}, which this checkout does not have")
        return path

    return find


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return ROOT


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Loss by property, when the contract was run: `.` holds, `e` is excused by the loss with a reason, `F` broken."""
    marks = {"passed": ".", "skipped": "e", "failed": "F"}
    found: dict[str, dict[str, str]] = {}
    for outcome, mark in marks.items():
        for report in terminalreporter.stats.get(outcome, []):
            case = CONTRACT.search(getattr(report, "nodeid", ""))
            if case:
                title, loss = case.groups()
                found.setdefault(loss, {})[title] = mark
    if not found:
        return
    from prefopt.testing import PROPERTIES

    terminalreporter.write_sep("=", "losses by property (. holds, e excused, F broken)")
    for number, title in enumerate(PROPERTIES):
        terminalreporter.write_line(f"{'':24} {'| ' * number}{title}")
    for loss in sorted(found):
        terminalreporter.write_line(f"{loss:24} {' '.join(found[loss].get(title, '-') for title in PROPERTIES)}")
