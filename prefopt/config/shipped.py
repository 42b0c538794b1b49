"""The recipes and the demonstration data that ship with the package."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from prefopt.config.paths import short
from prefopt.errors import ConfigError

_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "runs", ".*")


def recipes_dir() -> Path:
    """The folder of the shipped recipes: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "_recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def copy_recipes(folder: Path, *, overwrite: bool = False) -> Path:
    """Copy recipes and data to `folder/recipes` and return that. Other files in `folder` stay.

    Raises: `ConfigError` when `folder` is a file, or holds something and `overwrite` is not said.
    """
    source = recipes_dir()
    if not source.is_dir():
        raise ConfigError(f"the shipped recipes are missing from {short(source)}.")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a new folder.")
    if not overwrite and folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} is not empty. Name a new folder, or say --overwrite to replace files of equal name."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".recipes-") as temporary:
            copied = Path(temporary) / "recipes"
            shutil.copytree(source, copied, ignore=_LEFT_OUT)
            _move(copied, folder / "recipes")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror or error}.") from error
    return folder / "recipes"


def _move(copied: Path, target: Path) -> None:
    """Whole when the target is new, else file by file, each by a rename."""
    if not target.exists():
        os.replace(copied, target)
        return
    for file in sorted(path for path in copied.rglob("*") if path.is_file()):
        goal = target / file.relative_to(copied)
        goal.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, goal)
