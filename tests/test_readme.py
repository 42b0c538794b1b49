"""The README's Python runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)


def test_the_examples_run_in_order(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    place: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), place)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    assert len(lines) == 8
    assert "loss 0.6931" in lines[0]
    assert place["losses"].shape == (4,)  # type: ignore[attr-defined]


def test_every_linked_file_exists() -> None:
    for document in ("README.md", "recipes/README.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / document).read_text()):
            assert (ROOT / document).parent.joinpath(target).exists(), f"{document} links to {target}"
