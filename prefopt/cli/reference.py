"""`prefopt reference`: fill the cache of reference log-probabilities."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from prefopt.cli.train import _first_process, _speak, together
from prefopt.config import load_recipe
from prefopt.errors import ConfigError
from prefopt.scores import Need


def reference(recipe: Path, overrides: Sequence[str], *, as_json: bool = False) -> None:
    """Fill the cache of a recipe's reference with all responses of its training and evaluation data.

    Raises: `ConfigError`, `DataError` for what the recipe or its data get wrong, and for a recipe without a reference.
    """
    loaded = load_recipe(recipe, overrides)
    objective = loaded.objective()
    if Need.REFERENCE not in objective.needs:
        raise ConfigError(f"loss '{objective.name}' reads no reference; there is nothing to compute.")
    if loaded.reference.cache == "off":
        raise ConfigError("reference.cache is off; with `auto` or a path there is somewhere to write to.")
    _speak()
    from prefopt.scoring.cache import Cache
    from prefopt.train.build import prepare, training_arguments
    from prefopt.train.cached import fill_cache
    from prefopt.train.model import load_policy, load_tokenizer
    from prefopt.train.references import default_scorer, live_reference

    args, model = training_arguments(loaded), loaded.model
    tokenizer = load_tokenizer(model.name_or_path, revision=model.revision, trust_remote_code=model.trust_remote_code)
    with args.main_process_first(desc="tokenizing"):
        sets = [part.rows for part in prepare(loaded, tokenizer, objective, args).values()]
    scorer = default_scorer(args, loaded.scoring.backend, loaded.scoring.layout)
    live = live_reference(loaded, load_policy(model), scorer, tokenizer)
    live.model.to(args.device).eval()
    rank, world = args.process_index, args.world_size
    with _progress(sum(map(len, sets)) // world, quiet=as_json) as done:
        cache, added = fill_cache(loaded, live, tokenizer, objective, sets, rank=rank, world=world, done=done)
    together()
    if not _first_process():
        return
    cache = Cache.open(cache.folder)  # what the others computed stands in it now
    folder = str(cache.folder)
    if as_json:
        print(json.dumps({"folder": folder, "responses": len(cache), "added": added, "reference": cache.identity}))
    else:
        share = f" by this process, of {world}" if world > 1 else ""
        Console().print(f"{added:,} responses computed{share}, {len(cache):,} in {escape(folder)}", soft_wrap=True)


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=quiet or not (console.is_terminal and _first_process())) as bar:
        task = bar.add_task("reference, rows", total=total)
        yield lambda rows: bar.advance(task, rows)
