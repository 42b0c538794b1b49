"""What all tests share: no model hub, and real models and data where a checkout has them beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
    os.environ.setdefault(name, "1")  # before any test imports a library that reads them
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).parents[1]
ASSETS = ROOT.parent / "shared" / "assets"


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
