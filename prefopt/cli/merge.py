"""`prefopt merge`: an adapter into its base weights."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from prefopt.cli.console import speak
from prefopt.errors import ConfigError

DTYPES = ("float32", "bfloat16", "float16")


def merge(run: Path, out: Path, *, dtype: str | None = None) -> None:
    """Write the merged model and say how near it is to the adapter.

    Raises: `ConfigError` for what cannot be merged, `RunError` when the logits differ.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"--dtype is one of {', '.join(DTYPES)}; got '{dtype}'.")
    speak()
    from prefopt.train.merge import merge as merged

    found = merged(run, out, dtype=dtype)
    text = f"merged model in {escape(str(found.folder))}; its logits differ from the adapter's by {found.gap:.1e}"
    Console().print(
        f"{text} of the largest one, and {100 * found.lost:.2g} % of what the adapter changes is lost.", soft_wrap=True
    )
