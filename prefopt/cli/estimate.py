"""`prefopt estimate`: memory per device before anything loads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from prefopt.cli.console import speak
from prefopt.config import load_recipe
from prefopt.errors import ConfigError

if TYPE_CHECKING:
    from prefopt.train.estimate import Estimate

SHARDING = {"none": "", "zero2": "ZeRO 2", "zero3": "ZeRO 3", "fsdp": "FSDP"}
_GIB = 2**30


def estimate(
    recipe: Path, overrides: Sequence[str], *, world: int = 1, sharding: str = "none", as_json: bool = False
) -> None:
    """Print what one device holds at the peak of a step, by what it is for.

    Raises: `ConfigError`, `DataError` for what the recipe or its data get wrong.
    """
    if sharding not in SHARDING:
        raise ConfigError(f"--sharding is one of {', '.join(SHARDING)}; got '{sharding}'.")
    if sharding != "none" and world == 1:
        raise ConfigError(f"--sharding {sharding} divides memory over devices: say how many with --world.")
    loaded = load_recipe(recipe, overrides)
    speak()
    from prefopt.train.estimate import estimate as run

    found = run(loaded, world=world, sharding=sharding)
    if as_json:
        print(json.dumps({**vars(found), "total": found.total}))
    else:
        _show(found, world, sharding)


def _show(found: Estimate, world: int, sharding: str) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    lines = {
        "weights": found.weights,
        "reference": found.reference,
        "gradients": found.gradients,
        "optimizer": found.optimizer,
        "exchange between devices": found.exchange,
        "activations, head, temporary values": found.computation,
    }
    for name, size in lines.items():
        if size != 0:
            table.add_row(name, "not known" if size is None else _readable(size))
    table.add_row("[bold]total[/]", f"[bold]{_readable(found.total)}[/]")
    console = Console()
    console.print(table)
    devices = (
        "one device"
        if world == 1
        else f"each of {world} devices" + (f", {SHARDING[sharding]}" if SHARDING[sharding] else "")
    )
    console.print(
        f"on {devices}, at the largest micro-batch of the first epoch ({found.rows} rows, {found.tokens:,} tokens); "
        "libraries and their context come on top.",
        soft_wrap=True,
    )


def _readable(size: int) -> str:
    return f"{size / _GIB:.2f} GiB" if size >= _GIB else f"{size / 2**20:.0f} MiB"
