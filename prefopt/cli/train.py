"""`prefopt train`: run a recipe and say what came of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from prefopt.cli.console import first_process, speak, together
from prefopt.config import load_recipe

if TYPE_CHECKING:
    from prefopt.train.build import TrainResult


def train(
    recipe: Path,
    overrides: list[str],
    *,
    resume: bool = False,
    resume_from: Path | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
) -> None:
    """Train from a recipe file and print the result on rank 0."""
    loaded = load_recipe(recipe, overrides)  # before torch is imported: a mistake in the recipe answers at once
    speak()
    for warning in loaded.warnings:
        logging.getLogger("prefopt").warning("%s", warning)
    from prefopt.train.build import train as run

    result = run(
        loaded, resume=resume, resume_from=resume_from, overwrite=overwrite, dry_run=dry_run, on_plan=_show_plan
    )
    if first_process():
        _show(result)
    together()


def _show_plan(plan: dict[str, Any]) -> None:
    if not first_process():
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in plan.items():
        table.add_row(f"[bold]{name}[/]", escape(_plain(value)))
    Console(stderr=True).print(table)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _show(result: TrainResult) -> None:
    console = Console()
    if result.dry_run:
        console.print("dry run: everything is ready, nothing was trained or written.")
        return
    plan = result.plan
    console.print(
        escape(
            f"trained {plan['model']} with {plan['objective']}: {plan['rows']['train']:,} rows, {plan['steps']} steps"
        ),
        soft_wrap=True,
    )
    table = Table(show_edge=False)
    for column in ("", "before", "after", "change"):
        table.add_column(column, justify="left" if not column else "right")
    for name in _interesting(result.after):
        cells = _cells(name, result.before.get(name), result.after[name])
        if result.before.get(name.replace("accuracies", "ties")) == 1 and name.endswith("rewards/accuracies"):
            cells = ["all tied", cells[1], ""]  # at the start policy and reference are equal
        table.add_row(escape(_label(name)), *cells)
    if not result.after:
        for name in ("loss", "rewards/accuracies", "rewards/margins", "displacement/chosen_delta"):
            if name in result.training:
                table.add_row(f"{_label(name)} (training, last logged)", *_cells(name, None, result.training[name]))
    console.print(table)
    console.print(f"\nrun directory: {escape(str(result.run))}", soft_wrap=True)
    for line in result.next_steps:
        console.print(escape(line), soft_wrap=True)


_LABELS = {
    "answer_accuracy": "answers right, share",
    "rewards/accuracies": "chosen preferred, share of pairs",
    "rewards/margins": "reward margin",
    "displacement/chosen_delta": "log-prob of chosen against the reference, nats",
    "displacement/rejected_delta": "log-prob of rejected against the reference, nats",
    "loss": "loss",
}
_SHARES = ("answer_accuracy", "rewards/accuracies")


def _measure(name: str) -> str | None:
    return next((key for key in _LABELS if name == key or name.endswith(f"_{key}")), None)


def _interesting(metrics: dict[str, float]) -> list[str]:
    return [name for key in _LABELS for name in metrics if _measure(name) == key]


def _label(name: str) -> str:
    key = _measure(name) or name
    place = name.removesuffix(key).removeprefix("eval_").strip("_")
    return f"{place + ': ' if place else ''}{_LABELS.get(key, key)}"


def _cells(name: str, before: float | None, after: float) -> list[str]:
    share = _measure(name) in _SHARES

    def text(value: float) -> str:
        return f"{100 * value:.1f} %" if share else f"{value:.3f}"

    if before is None:
        return ["", text(after), ""]
    change = f"{100 * (after - before):+.1f} points" if share else f"{after - before:+.3f}"
    return [text(before), text(after), change]
