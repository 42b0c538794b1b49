"""Regular expressions find the same with every Python that the package runs on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{\{?\d*,?\d*\}\}?)\+")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [(r"(?:,\d{3})++", True), (r"(?:b|c){1,3}+", True), (r"(x){{2,}}+", True), (r"(?>(?:,\d{3})+)", False)],
)
def test_the_finder_of_possessive_groups(pattern: str, found: bool) -> None:
    assert (POSSESSIVE_GROUP.search(pattern) is not None) is found


@pytest.mark.parametrize("package", ["data_tools", "prefopt"])
def test_no_group_repeats_possessively(package: str) -> None:
    """Before Python 3.11.5 a group under `++` keeps the part of it that did match; an atomic group does not."""
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if POSSESSIVE_GROUP.search(line)
    ]
    assert not lines, "\n".join(["write an atomic group, (?>(?:...)+):", *lines])
