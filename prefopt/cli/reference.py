"""`prefopt reference`: fill the cache of reference log-probabilities."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from prefopt.cli.console import first_process, shown_progress, speak, together
from prefopt.config import load_recipe
from prefopt.errors import ConfigError
from prefopt.scores import Need

logger = logging.getLogger(__name__)


def reference(recipe: Path, overrides: Sequence[str], *, as_json: bool = False) -> None:
    """Fill the cache of a recipe's reference with all responses of its training and evaluation data.

    Raises: `ConfigError`, `DataError` for what the recipe or its data get wrong, and for a recipe without a reference,
    or with one that no cache can serve.
    """
    loaded = load_recipe(recipe, overrides)
    objective = loaded.objective()
    if Need.REFERENCE not in objective.needs:
        raise ConfigError(f"loss '{objective.name}' reads no reference; there is nothing to compute.")
    if loaded.reference.cache == "off":
        raise ConfigError("reference.cache is off; with `auto` or a path there is somewhere to write to.")
    if loaded.reference.cache == "columns":
        raise ConfigError(
            "reference.cache is columns: the data bring the values; with `auto` or a path they are computed."
        )
    if loaded.reference.sync is not None:
        raise ConfigError("reference.sync moves the reference during training, and a cache cannot serve such a run.")
    speak()
    if Need.KL in objective.needs:
        text = "loss '%s' compares whole distributions, which a cache does not hold: it will serve other losses only."
        logger.warning(text, objective.name)
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
    with shown_progress("reference, rows", first=first_process()) as progress:
        cache, added = fill_cache(loaded, live, tokenizer, objective, sets, rank=rank, world=world, progress=progress)
    together()
    if not first_process():
        return
    cache = Cache.open(cache.folder)  # what the others computed stands in it now
    folder = str(cache.folder)
    if as_json:
        print(json.dumps({"folder": folder, "responses": len(cache), "added": added, "reference": cache.identity}))
    else:
        share = f" by this process, of {world}" if world > 1 else ""
        Console().print(f"{added:,} responses computed{share}, {len(cache):,} in {escape(folder)}", soft_wrap=True)
