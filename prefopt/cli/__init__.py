"""The command line: a table of commands, each imported when it is called, and what becomes of errors.

Exit codes: 0 done, 1 failed while running, 2 the user's input was refused.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from prefopt.errors import ConfigError, InputError, PrefoptError

app = typer.Typer(
    name="prefopt",
    help="Preference optimization of causal language models: recipes in, trained models and records out.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_PATIENCE = 30.0  # seconds

Recipe = Annotated[Path, typer.Argument(metavar="RECIPE", help="recipe file, YAML or JSON", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="settings over the recipe's, e.g. loss.beta=0.2", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="machine-readable on stdout, and nothing else there")]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code. Errors become one readable paragraph on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    if arguments[:1] != ["data"]:  # which has the option itself
        arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        typer.main.get_command(app).main(arguments, prog_name="prefopt")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception as error:  # the last line of defence: a sentence instead of a traceback
        return _complain(error, debug=debug)
    return 0


def run() -> NoReturn:
    """Run this process's command line and end the process with its exit code."""
    leave(main())


def leave(code: int) -> NoReturn:
    """End this process.

    One that a launcher started ends as `multiprocessing`'s do, without taking the interpreter apart: what a finished
    run still holds of its process group has threads, and one that wants the interpreter then ends in SIGABRT, which
    would make a failed launch of a run that is done (github.com/pytorch/pytorch/pull/179291).
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        raise SystemExit(code)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as an interpreter's end does first
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _complain(error: Exception, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    rank = os.environ.get("RANK", "0")
    if rank != "0" and isinstance(error, ConfigError):
        # every process refuses the recipe, and the first one says so; a launcher ends all as soon as one has ended, so
        # this one waits for that end instead of bringing it about before a word was said
        time.sleep(_PATIENCE)
    text = str(error)
    if not isinstance(error, PrefoptError):
        text = f"{type(error).__name__}: {error}\nThis was not foreseen; --debug shows where it happened."
    print(text if rank == "0" else f"[process {rank}] {text}", file=sys.stderr)
    return 2 if isinstance(error, InputError) else 1


def _show_version(wanted: bool) -> None:
    if wanted:
        from prefopt import __version__

        print(f"prefopt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="show the version and exit")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error; may stand anywhere")] = False,
) -> None:
    """What stands before the command."""


@app.command()
def train(
    recipe: Recipe,
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue from the newest checkpoint")] = False,
    resume_from: Annotated[Path | None, typer.Option(help="continue from this checkpoint", show_default=False)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="empty the run directory first")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="load and check everything, then stop")] = False,
) -> None:
    """Train a recipe."""
    if resume and resume_from is not None:
        raise ConfigError("--resume and --resume-from exclude each other: the one looks for the newest checkpoint.")
    if overwrite and (resume or resume_from is not None):
        raise ConfigError("--overwrite and --resume exclude each other: there would be nothing left to continue.")
    from prefopt.cli.train import train as run

    run(recipe, overrides or [], resume=resume, resume_from=resume_from, overwrite=overwrite, dry_run=dry_run)


@app.command()
def check(recipe: Recipe, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Check a recipe without loading a model."""
    from prefopt.cli.check import check as run

    run(recipe, overrides or [], as_json=as_json)


@app.command()
def preview(
    recipe: Recipe,
    overrides: Overrides = None,
    rows: Annotated[int, typer.Option("-n", "--rows", min=1, help="how many rows")] = 3,
) -> None:
    """Show the first rows as tokens, and what is scored."""
    from prefopt.cli.preview import preview as run

    run(recipe, overrides or [], rows=rows)


@app.command()
def estimate(
    recipe: Recipe,
    overrides: Overrides = None,
    world: Annotated[int, typer.Option(min=1, help="devices that train together")] = 1,
    sharding: Annotated[str, typer.Option(help="what is divided over them: none, zero2, zero3, fsdp")] = "none",
    as_json: AsJson = False,
) -> None:
    """Say how much memory a recipe takes, before it loads."""
    from prefopt.cli.estimate import estimate as run

    run(recipe, overrides or [], world=world, sharding=sharding, as_json=as_json)


@app.command()
def merge(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="run directory with an adapter", show_default=False)],
    out: Annotated[Path, typer.Option(help="new or empty folder for the merged model", show_default=False)],
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16 [the recipe's model.dtype]", show_default=False)
    ] = None,
) -> None:
    """Write a run's adapter into its base weights, checked."""
    from prefopt.cli.merge import merge as write

    write(run, out, dtype=dtype)


@app.command()
def reference(recipe: Recipe, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Compute the reference once, for every later run.

    A recipe with `reference: {cache: auto}`, the default, then finds them; with `cache: PATH` they lie there. What is
    there already is not computed again, so a run that was cut off goes on.
    """
    from prefopt.cli.reference import reference as run

    run(recipe, overrides or [], as_json=as_json)


@app.command()
def losses(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="one loss in full", show_default=False)] = None,
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="the table of losses as Markdown")] = False,
    into: Annotated[
        Path | None, typer.Option(help="with --markdown: put it between the markers in this file", show_default=False)
    ] = None,
) -> None:
    """List the losses, or show one in full.

    The sheet of a loss has its formula, its options with range and unit, what it needs, and its source.
    """
    from prefopt.cli.losses import losses as run

    run(name, as_json=as_json, markdown=markdown, into=into)


@app.command()
def schema() -> None:
    """Print the JSON schema of a recipe, for editors."""
    from prefopt.cli.schema import schema as run

    run()


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="new or empty folder", show_default=False)],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace files of the same name")] = False,
) -> None:
    """Copy recipes and demonstration data to a folder."""
    from prefopt.cli.init import init as run

    run(folder, overwrite=overwrite)


@app.command()
def diagnose(
    out: Annotated[Path, typer.Option(help="new or empty folder for what is found", show_default=False)],
    target: Annotated[
        Path | None,
        typer.Argument(metavar="[RECIPE|RUN]", help="a recipe, or the directory of a finished run", show_default=False),
    ] = None,
    overrides: Overrides = None,
    model: Annotated[
        str | None, typer.Option(help="without a recipe: the model to diagnose", show_default=False)
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="what --model was trained from: diagnoses how it moved", show_default=False)
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="pairs; may be repeated, and replaces a recipe's data", show_default=False)
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(metavar="OURS=THEIRS", help="of --data", show_default=False)
    ] = None,
    split: Annotated[str | None, typer.Option(help="of --data, when it is a data set", show_default=False)] = None,
    max_length: Annotated[
        int | None, typer.Option(min=2, help="longest prompt + response, tokens [1024]", show_default=False)
    ] = None,
    truncate: Annotated[
        str | None, typer.Option(help="longer rows: drop, response, prompt_start [drop]", show_default=False)
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(help="chat template around text: auto (messages only), always, never", show_default=False),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="of --model's weights: float32, bfloat16 [float32]", show_default=False)
    ] = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="tokens in a batch, padding included")] = 4096,
    keep_lowest: Annotated[
        float | None, typer.Option(help="write the records with the lowest scores, this share", show_default=False)
    ] = None,
    keep_lowest_by: Annotated[
        str | None,
        typer.Option(help="ln_ches, ches, cosine, last_inner_product, similarity [ln_ches]", show_default=False),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace a finished diagnosis")] = False,
    as_json: AsJson = False,
) -> None:
    """Find pairs that are likely to displace, or how a run moved.

    Before training: prefopt diagnose --model M --data D --out DIR, or prefopt diagnose RECIPE --out DIR.
    After it: prefopt diagnose RUN --out DIR, or --model TRAINED --start BEFORE. Nothing is filtered unless asked.
    """
    from prefopt.cli.diagnose import Asked
    from prefopt.cli.diagnose import diagnose as run

    asked = Asked(
        target,
        overrides=overrides or (),
        model=model,
        start=start,
        data=data or (),
        columns=columns or (),
        split=split,
        max_length=max_length,
        truncate=truncate,
        template=template,
        dtype=dtype,
    )
    run(
        asked,
        out,
        batch_tokens=batch_tokens,
        keep_lowest=keep_lowest,
        keep_lowest_by=keep_lowest_by,
        overwrite=overwrite,
        as_json=as_json,
    )


@app.command()
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="run directories and folders of diagnose", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="folder, or file in .html or .md [the folder itself; with several, here]", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a page and Markdown of runs, side by side.

    A diagnosis of a run that is named too joins its column. The page is one file that opens offline.
    """
    from prefopt.cli.report import report as run

    run(folders, out, as_json=as_json)


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
def data(context: typer.Context) -> None:
    """Make and check preference data (data_tools)."""
    from prefopt.cli.data import data as run

    raise typer.Exit(run(context.args))
