"""The command line of data_tools: the commands of `data_tools.commands`, and what becomes of errors."""

import sqlite3
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

import typer

from data_tools import commands
from data_tools.command import app
from data_tools.errors import DataToolsError


@app.callback()
def _root() -> None:
    """Keeps the name of the command on the command line also while there is only one command."""


def main(arguments: Sequence[str] | None = None, *, name: str = "python -m data_tools") -> int:
    """Run the command line; returns 0 for done, 1 for a failure while running, 2 for input that was refused.

    `name` is what the user has typed for it.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    try:
        _discover()
        app([argument for argument in arguments if argument != "--debug"], prog_name=name)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except DataToolsError as error:
        return _complain(error, code=2, debug=debug)
    except sqlite3.OperationalError as error:
        full = f"a temporary file (in TMPDIR, else /var/tmp): {error}. Set TMPDIR to a folder with more room."
        return _complain(DataToolsError(full), code=1, debug=debug)
    except OSError as error:
        if error.filename is not None:
            return _complain(DataToolsError(f"{error.filename}: {error.strerror}."), code=1, debug=debug)
        says = f"{error.strerror or error}. What was done is kept; the same command goes on from there."
        return _complain(DataToolsError(says), code=1, debug=debug)
    except Exception as error:  # the last line of defence: one readable sentence instead of a traceback
        return _complain(error, code=1, debug=debug)
    return 0


def _discover() -> None:
    """Import every module of `data_tools.commands`; importing one registers its command."""
    for module in sorted(iter_modules(commands.__path__), key=lambda module: module.name):
        if not module.name.startswith("_"):
            import_module(f"{commands.__name__}.{module.name}")


def _complain(error: Exception, *, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    kind = "" if isinstance(error, DataToolsError) else f"{type(error).__name__}: "
    typer.echo(f"error: {kind}{error}", err=True)
    return code
