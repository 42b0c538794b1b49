"""What must answer at once imports neither torch nor transformers. Each case is a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "transformers", "datasets", "trl", "peft", "accelerate", "numpy", "pyarrow")

PROBE = """
import json, sys
{statement}
print(json.dumps([name for name in {heavy} if name in sys.modules]), file=sys.stderr)
"""
COMMAND = "from prefopt.cli import main; assert main({arguments}) == {code}"


def heavy_after(statement: str, folder: Path) -> list[str]:
    probe = PROBE.format(statement=statement, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=folder, timeout=60)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stderr.splitlines()[-1])
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    recipe = {"model": {"name_or_path": "some/model"}, "data": {"train": "pairs.jsonl"}, "loss": {"name": "dpo"}}
    (tmp_path / "good.json").write_text(json.dumps(recipe | {"training": {"output_dir": "run"}}))
    (tmp_path / "bad.json").write_text(json.dumps(recipe))
    return tmp_path


@pytest.mark.parametrize(
    "statement",
    [
        "import prefopt",
        "import prefopt.config, prefopt.losses, prefopt.scores, prefopt.cli, prefopt.demo",
        "import prefopt; prefopt.get_loss('dpo', beta=0.2)",
        "import data_tools",
        COMMAND.format(arguments=["--help"], code=0),
        COMMAND.format(arguments=["check", "good.json"], code=0),
        COMMAND.format(arguments=["check", "bad.json"], code=2),
        COMMAND.format(arguments=["train", "bad.json"], code=2),
        COMMAND.format(arguments=["losses"], code=0),
        COMMAND.format(arguments=["losses", "dpo"], code=0),
        COMMAND.format(arguments=["losses", "--json"], code=0),
        COMMAND.format(arguments=["schema"], code=0),
        COMMAND.format(arguments=["data", "--help"], code=0),
    ],
)
def test_nothing_heavy_is_imported(statement: str, folder: Path) -> None:
    assert heavy_after(statement, folder) == []


def test_the_probe_sees_what_is_heavy(folder: Path) -> None:
    assert heavy_after("import numpy", folder) == ["numpy"]
