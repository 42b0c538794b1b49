"""The installed package, without a checkout beside it: recipes and demonstration data come along."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # building needs the package index for its tools


def run(*command: str, folder: Path, path: Path | None = None) -> str:
    env = dict(os.environ) if path is None else {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheels, target = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(repository), folder=wheels)
    (wheel,) = wheels.glob("*.whl")
    run(*pip, "install", "--quiet", "--no-deps", "--target", str(target), str(wheel), folder=wheels)
    with zipfile.ZipFile(wheel) as archive:
        stray = [name for name in archive.namelist() if "__pycache__" in name or "/runs/" in name]
    assert not stray
    return target


def test_it_holds_recipes_data_and_types(installed: Path) -> None:
    for file in (
        "quickstart.yaml",
        "losses/dpo.yaml",
        "base/cpu.yaml",
        "accelerate/zero2.yaml",
        "data/tiny-math/pairs.jsonl",
    ):
        assert (installed / "prefopt" / "_recipes" / file).is_file()
    assert (installed / "prefopt" / "py.typed").is_file()
    assert (installed / "prefopt" / "config" / "_training_arguments.json").is_file()
    assert (installed / "data_tools" / "cli.py").is_file()
    assert not (installed / "tests").exists()


def test_its_recipes_can_be_copied_and_checked(installed: Path, tmp_path: Path) -> None:
    prefopt = (sys.executable, "-P", "-m", "prefopt")
    where = run(sys.executable, "-P", "-c", "import prefopt; print(prefopt.__file__)", folder=tmp_path, path=installed)
    assert where.startswith(str(installed)), "the checkout must not be what is tested"
    run(*prefopt, "init", "project", folder=tmp_path, path=installed)
    out = run(*prefopt, "check", "project/recipes/quickstart.yaml", folder=tmp_path, path=installed)
    assert "is in order" in out
