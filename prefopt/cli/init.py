"""`prefopt init`: recipes and demonstration data, copied out of the package."""

from __future__ import annotations

from pathlib import Path

from prefopt.config.shipped import copy_recipes


def init(folder: Path, *, overwrite: bool = False) -> None:
    """Copy, and say what to do next."""
    recipes = copy_recipes(folder, overwrite=overwrite)
    print(f"{recipes} holds the recipes. To begin: prefopt train {recipes / 'quickstart.yaml'}")
