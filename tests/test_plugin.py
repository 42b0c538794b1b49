"""A newcomer's loss: found through its entry point, checked by the contract, trained from a recipe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

METADATA = "Metadata-Version: 2.1\nName: newcomer\nVersion: 0.1\n"
ENTRY_POINTS = "[prefopt.losses]\nnewcomer = newcomer\n"
BROKEN = "[prefopt.losses]\nwreck = wreck\n"

RECIPE = """\
model: {name_or_path: demo:tiny-math}
data:
  train: pairs.jsonl
  template: always
loss: {name: newcomer, sharpness: 0.2}
training: {output_dir: run, max_steps: 2, per_device_train_batch_size: 2, logging_steps: 1, use_cpu: true,
save_strategy: "no"}
"""


def installed(folder: Path, name: str, source: str, entry_points: str) -> None:
    """What an installer leaves behind: the module, and the metadata that names its entry points."""
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.replace("newcomer", name))
    (info / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    installed(tmp_path, "newcomer", (ROOT / "tests/plugin/newcomer.py").read_text(), ENTRY_POINTS)
    return tmp_path


def python(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words], env=environment, cwd=site, capture_output=True, text=True, timeout=120
    )


def test_it_is_listed_with_where_it_comes_from(site: Path) -> None:
    done = python(site, "-m", "prefopt", "losses", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = [loss for loss in json.loads(done.stdout) if loss["name"] == "newcomer"]
    assert found["needs"] == ["reference"]
    assert found["origin"] == "newcomer"


def test_it_passes_the_contract(site: Path) -> None:
    done = python(site, "-c", "from prefopt.testing import check_loss; check_loss('newcomer'); print('kept')")
    assert done.stdout.strip() == "kept", done.stderr


def test_it_trains_from_a_recipe(site: Path) -> None:
    (site / "recipe.yaml").write_text(RECIPE)
    rows = [
        {"prompt": f"Add {n} and 1.", "chosen": f"The answer is {n + 1}.", "rejected": f"The answer is {n}."}
        for n in range(6)
    ]
    (site / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = python(site, "-m", "prefopt", "train", "recipe.yaml")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (site / "run" / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if "loss" in line]  # without those of probes
    assert lines[0]["loss"] == pytest.approx(1.3133, abs=1e-3)  # log(1 + e) at policy = reference
    assert "newcomer" in (site / "run" / "recipe.yaml").read_text()


def test_a_plugin_that_fails_to_import_is_reported_and_stops_nobody(site: Path) -> None:
    installed(site, "wreck", "raise RuntimeError('half-finished')\n", BROKEN)
    listed = python(site, "-m", "prefopt", "losses")
    assert listed.returncode == 0
    assert "newcomer" in listed.stdout
    assert "half-finished" in listed.stdout + listed.stderr
    asked = python(site, "-m", "prefopt", "losses", "wreck")
    assert asked.returncode == 2
    assert "half-finished" in asked.stderr


def test_a_name_is_not_taken_twice(site: Path) -> None:
    source = (ROOT / "tests/plugin/newcomer.py").read_text().replace('"newcomer"', '"dpo"')
    shutil.rmtree(site / "newcomer-0.1.dist-info")
    installed(site, "newcomer", source, ENTRY_POINTS)
    done = python(site, "-m", "prefopt", "losses")
    assert "loss name 'dpo' of newcomer is taken by 'dpo' of prefopt" in done.stdout + done.stderr
