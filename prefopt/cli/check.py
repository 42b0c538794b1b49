"""`prefopt check`: is a recipe in order, and what would it do?"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefopt.config import load_recipe
from prefopt.config.summary import summary
from prefopt.errors import ConfigError


def check(recipe: Path, overrides: Sequence[str], *, as_json: bool = False) -> None:
    """Print what the recipe would do, with warnings, or raise what is wrong with it.

    Raises: `ConfigError`; with `as_json` its problems are on stdout too.
    """
    try:
        loaded = load_recipe(recipe, overrides)
    except ConfigError as error:
        if as_json:
            _print_json({"ok": False, "problems": [_problem(problem) for problem in error.problems], "warnings": []})
        raise
    plan = summary(loaded)
    if as_json:
        _print_json({"ok": True, "problems": [], "warnings": list(loaded.warnings), "plan": plan})
        return
    width = max(map(len, plan))
    for name, value in plan.items():
        print(f"{name:<{width}}  {value}")
    print(f"{recipe} is in order; nothing was loaded.")
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _problem(problem: Any) -> dict[str, Any]:
    return {"place": problem.place, "path": ".".join(map(str, problem.path)), "text": problem.text}


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
