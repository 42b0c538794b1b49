"""Imports point down only: every import of our own packages is read with `ast` and held against the table of layers."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS = {
    "data_tools": 0,
    "prefopt._torch": 0,
    "prefopt.errors": 1,
    "prefopt.params": 1,
    "prefopt.demo": 1,
    "prefopt.context": 2,
    "prefopt.scores": 2,
    "prefopt.runs": 2,
    "prefopt.losses": 3,
    "prefopt.scoring": 3,
    "prefopt.data": 3,
    "prefopt.report": 3,
    "prefopt.config": 4,
    "prefopt.diagnostics": 4,
    "prefopt.testing": 4,
    "prefopt.train": 5,
    "prefopt": 6,  # the public names
    "prefopt.cli": 7,
    "prefopt.__main__": 8,
}
NEIGHBOURS = {("prefopt.params", "prefopt.errors"), ("prefopt.demo", "prefopt.errors")}
"""Within a layer, who may import whom."""

STANDALONE = set(sys.stdlib_module_names) | {"data_tools", "pydantic", "rich", "rapidfuzz", "math_verify", "typer"}


@dataclass(frozen=True)
class Import:
    """One imported module, where, and whether it happens when the file is imported."""

    file: Path
    line: int
    module: str
    at_import: bool
    for_types: bool

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def imports_of(file: Path) -> Iterator[Import]:
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    yield from _walk(tree, file, at_import=True, for_types=False)


def _walk(node: ast.AST, file: Path, *, at_import: bool, for_types: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        modules: list[str] = []
        if isinstance(child, ast.Import):
            modules = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            base = _absolute(file, child)
            modules = [f"{base}.{a.name}" if _is_module(f"{base}.{a.name}") else base for a in child.names]
        yield from (Import(file, child.lineno, name, at_import, for_types) for name in dict.fromkeys(modules))
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typed = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
        if typed:
            assert isinstance(child, ast.If)
            for part in child.body:
                yield from _walk(ast.Module([part], []), file, at_import=at_import, for_types=True)
            for part in child.orelse:
                yield from _walk(ast.Module([part], []), file, at_import=at_import, for_types=for_types)
        else:
            yield from _walk(child, file, at_import=at_import and not inside, for_types=for_types)


def _absolute(file: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = file.relative_to(ROOT).parts[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def package_of(module: str) -> str | None:
    """The entry of the table that a module belongs to, the longest that fits; None for other people's modules."""
    parts = module.split(".")
    names = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    return next((name for name in names if name in LAYERS and (name != "prefopt" or module == "prefopt")), None)


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(*folders: str) -> list[Path]:
    return [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]


def all_imports(*folders: str) -> list[Import]:
    return [found for file in sources(*folders) for found in imports_of(file)]


def test_every_module_has_a_layer() -> None:
    homeless = [file for file in sources("prefopt", "data_tools") if package_of(module_of(file)) is None]
    assert not homeless, f"give these a line in LAYERS: {[str(file.relative_to(ROOT)) for file in homeless]}"


def test_imports_point_down() -> None:
    wrong = []
    for found in all_imports("prefopt", "data_tools"):
        mine, theirs = package_of(module_of(found.file)), package_of(found.module)
        if mine is None or theirs is None or mine == theirs or (mine, theirs) in NEIGHBOURS:
            continue
        if LAYERS[mine] <= LAYERS[theirs]:
            wrong.append(f"{found}: {mine} is layer {LAYERS[mine]}, {theirs} is layer {LAYERS[theirs]}")
    assert not wrong, "\n".join(wrong)


def test_losses_know_neither_models_nor_processes() -> None:
    strangers = ("transformers", "torch.distributed", "accelerate", "trl", "peft", "datasets")
    wrong = [str(found) for found in all_imports("prefopt/losses") if found.module.startswith(strangers)]
    texts = {file: file.read_text(encoding="utf-8") for file in sources("prefopt/losses")}
    wrong += [str(file) for file, text in texts.items() if "torch.distributed" in text]
    assert not wrong, "\n".join(wrong)


def test_losses_and_scores_reach_torch_through_one_door() -> None:
    """`prefopt check` and `prefopt losses` read every loss file, and must answer at once."""
    found = [*all_imports("prefopt/losses"), *imports_of(ROOT / "prefopt" / "scores.py")]
    wrong = [str(item) for item in found if item.module.split(".")[0] == "torch" and not item.for_types]
    assert not wrong, "\n".join(["use `from prefopt._torch import torch, F`:", *wrong])


def test_data_tools_stand_alone() -> None:
    wrong = [str(item) for item in all_imports("data_tools") if item.module.split(".")[0] == "prefopt"]
    first = [item for item in all_imports("data_tools") if item.at_import and not item.for_types]
    wrong += [str(item) for item in first if item.module.split(".")[0] not in STANDALONE]
    assert not wrong, "\n".join(wrong)


def test_the_command_line_imports_commands_when_they_are_called() -> None:
    allowed = {"prefopt.errors"}
    found = [item for item in imports_of(ROOT / "prefopt" / "cli" / "__init__.py") if item.at_import]
    ours = [item for item in found if item.module.startswith(("prefopt", "data_tools"))]
    wrong = [str(item) for item in ours if item.module not in allowed]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "module", "at_import", "for_types"),
    [
        ("import torch.nn as nn", "torch.nn", True, False),
        ("from prefopt.losses import get_loss", "prefopt.losses", True, False),
        ("from prefopt import losses", "prefopt.losses", True, False),
        ("def f():\n    import torch", "torch", False, False),
        ("if TYPE_CHECKING:\n    from torch import Tensor", "torch", True, True),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import torch", "torch", True, False),
        ("class A:\n    import torch", "torch", True, False),
        ("try:\n    import torch\nexcept ImportError:\n    pass", "torch", True, False),
    ],
)
def test_the_reader_of_imports(tmp_path: Path, text: str, module: str, at_import: bool, for_types: bool) -> None:
    file = tmp_path / "some.py"
    file.write_text(text)
    (found,) = imports_of(file)
    assert (found.module, found.at_import, found.for_types) == (module, at_import, for_types)
