"""The reference cache of a recipe: what it is keyed by, when it serves, how it is filled. Sums that came as columns."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from prefopt.config import Recipe
from prefopt.data import rows as columns
from prefopt.data.collate import Collator
from prefopt.data.sampler import Pick, PickedRows, Rows, cut_by_tokens
from prefopt.errors import ConfigError, RunError
from prefopt.losses import Objective
from prefopt.scores import Need, TokenStats
from prefopt.scoring.cache import Cache, CachedReference, Piece, fill, keys_of, largest_gap, prepare
from prefopt.scoring.heads import causal_model, following
from prefopt.scoring.layout import Batch
from prefopt.scoring.reference import ModelReference
from prefopt.train.preflight import allowed_gap

logger = logging.getLogger(__name__)

HOME = "PREFOPT_CACHE"
"""The environment variable that names the folder under which `cache: auto` keeps and looks for caches."""

_TOKENS = 8192  # of one batch while a cache is filled
_VERIFIED = 4  # rows that are compared with the live reference


def identity(recipe: Recipe, live: ModelReference, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What decides the reference's log-probability of given token ids."""
    scorer, template = live.scorer, tokenizer.chat_template
    vocabulary = json.dumps(tokenizer.get_vocab(), sort_keys=True)
    return {
        "weights": live.identity["fingerprint"],
        "config": _short(json.dumps(_deciding(causal_model(live.model).config.to_dict()), sort_keys=True, default=str)),
        "tokenizer": _short(vocabulary),
        "template": None if template is None else _short(json.dumps(template, sort_keys=True)),
        "dtype": recipe.model.dtype,
        "products": str(scorer.autocast or recipe.model.dtype).removeprefix("torch."),
        "backend": "plain" if scorer.head(live.model) is None else "chunked",
    }


_ASIDE = re.compile(
    r"_.*|transformers_version|(torch_)?dtype|architectures|use_cache|(bos|eos|sep|cls|unk|mask|decoder_start)_token_id"
    r"|forced_\w+_token_id|id2label|label2id|auto_map|\w*dropout\w*|\w*pdrop|initializer_range|return_dict"
    r"|output_(attentions|hidden_states|scores|router_logits|past)|problem_type|is_encoder_decoder"
)


def _deciding(config: dict[str, Any]) -> dict[str, Any]:
    """What a model's config says of its values: windows, rotary embedding, norms, scales; not who wrote it, and how."""
    return {
        name: _deciding(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if not _ASIDE.fullmatch(str(name))
    }


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def folder(recipe: Recipe, key: dict[str, Any]) -> Path:
    """Where the recipe's cache lies: where it says, or with `auto` under the key's own name."""
    place = recipe.reference.cache
    if place not in ("auto", "off"):
        return Path(place)
    home = os.environ.get(HOME) or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prefopt"
    return Path(home) / "reference" / _short(json.dumps(key, sort_keys=True))


def pieces(rows: Rows) -> Iterator[list[Piece]]:
    """The scored responses of each row; of another prompt's too where the rows carry one."""
    for number in range(len(rows)):
        row = rows[number]
        yield [
            Piece(row[columns.PROMPT_IDS], ids, mask) for ids, mask in zip(*_responses(row), strict=True) if any(mask)
        ]


def _responses(row: dict[str, Any]) -> tuple[list[list[int]], list[list[bool]]]:
    other = [row[columns.MISMATCHED]] if columns.MISMATCHED in row else []
    return [*row[columns.RESPONSES], *other], [*row[columns.MASKS], *([True] * len(ids) for ids in other)]


class LoadedRows:
    """Rows as the trainer's loader hands them out, by number."""

    def __init__(self, rows: Rows, objective: Objective) -> None:
        self.picked = PickedRows(rows, mismatched=Need.MISMATCHED in objective.needs)

    def __len__(self) -> int:
        return len(self.picked)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.picked[Pick(number)]


@dataclass(frozen=True)
class ColumnReference:
    """Sums that came with the data, for losses that read no more: no second model, and no forward pass.

    Each sum is spread evenly over the tokens it is of: a loss that reads sums sees it whole.
    """

    kind: str = "model"
    identity: dict[str, Any] = field(default_factory=dict)
    per_token = False

    def __call__(self, batch: Batch, *, distributions: bool = False) -> TokenStats:
        mask, sums = batch["mask"], batch[columns.REFERENCE_SUMS]  # [B, R, T], [B, R]
        each = sums / mask.sum(-1).clamp(min=1)
        return TokenStats(each.unsqueeze(-1).expand(mask.shape).masked_fill(~mask, 0))

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.identity, "cache": "columns"}


def served(
    recipe: Recipe,
    live: ModelReference,
    tokenizer: PreTrainedTokenizerBase,
    objective: Objective,
    sets: Sequence[Rows],
    collator: Collator,
) -> CachedReference | ColumnReference | None:
    """The cache in the place of the live reference, where one serves; None where the reference is to be computed.

    It must be this reference's, hold every response of these sets, and agree with the live reference on a few rows.
    Raises: `ConfigError` when the recipe names a cache that does not serve; `RunError` when the values disagree.
    """
    asked = recipe.reference.cache
    moving = _batch_decides(live.model, sets)
    if asked == "columns":
        for rows in sets:
            # from every part of the data: one file of several may be another model's
            count = min(2 * _VERIFIED, len(rows))
            verify_columns(live, [rows[number * len(rows) // count] for number in range(count)], collator)
        return ColumnReference(live.describe()["kind"], live.identity)
    if asked == "off" or not sets or recipe.reference.sync is not None or Need.KL in objective.needs:
        return None
    if moving is not None:
        if asked == "auto":
            return None
        raise ConfigError(f"{moving}, so that no cache can hold it. {_SHORTER}")
    key = identity(recipe, live, tokenizer)
    place = folder(recipe, key)
    if asked == "auto" and not place.is_dir():
        if place.parent.is_dir() and any(place.parent.iterdir()):
            parts = "weights, config, tokenizer, template, precision, backend"
            logger.info("no cache in %s is of this reference (%s): computed live", place.parent, parts)
        return None
    cache = Cache.open(place, key)
    seen = [LoadedRows(rows, objective) for rows in sets]
    wanted = keys_of(piece for rows in seen for row in pieces(rows) for piece in row)
    missing = int((cache.find(wanted) < 0).sum())
    if missing:
        text = f"the reference cache {place} lacks {missing:,} of the {len(wanted):,} responses of this run"
        if asked != "auto":
            raise ConfigError(f"{text}; `prefopt reference RECIPE` adds what is missing.")
        logger.warning("%s, so the reference is computed live; `prefopt reference RECIPE` adds them.", text)
        return None
    reference = CachedReference(cache, live.describe()["kind"], live.identity)
    verify(reference, live, collator([seen[0][number] for number in range(min(_VERIFIED, len(seen[0])))]))
    return reference


_SHORTER = "Set data.max_length to no more than that, or reference.cache: off."


def _batch_decides(model: Any, sets: Sequence[Rows]) -> str | None:
    """Says so where a rotary embedding follows the longest row of a batch, and these rows are long enough for it."""
    follows = following(model)
    if follows is None:
        return None
    whole = (len(piece.prompt) + len(piece.response) for rows in sets for row in pieces(rows) for piece in row)
    longest = max(whole, default=0)
    return f"{follows}, and the longest here has {longest:,}" if longest > follows.limit else None


def verify(cached: CachedReference, live: ModelReference, batch: Batch) -> None:
    """Raises: `RunError` when the cache says something else of a batch than the live reference."""
    device = next(live.model.parameters()).device
    batch = {name: value.to(device) for name, value in batch.items()}
    gap = largest_gap(cached(batch).logps, live(batch).logps, batch["mask"])
    allowed = allowed_gap(live.model, live.scorer)
    if not gap <= allowed:
        raise RunError(
            f"the reference cache {cached.cache.folder} and the live reference differ by {gap:.3g} nats on a token of "
            f"the first rows (allowed {allowed:g}). Remove the folder and run `prefopt reference` again."
        )


def verify_columns(live: ModelReference, rows: Sequence[dict[str, Any]], collator: Collator) -> None:
    """Raises: `RunError` with the row and both values when a column says something else than the live reference."""
    if not rows:
        return
    device = next(live.model.parameters()).device
    batch = {name: value.to(device) for name, value in collator(rows).items()}
    mask, given = batch["mask"], batch[columns.REFERENCE_SUMS]
    computed = live(batch).logps.masked_fill(~mask, 0).sum(-1)
    # rounding of the tokens has no common direction, so that of a sum grows with the root of their number
    allowed = allowed_gap(live.model, live.scorer) * mask.sum(-1).sqrt()
    wrong = mask.any(-1) & ~((given - computed).abs() <= allowed)
    if wrong.any():
        b, r = wrong.nonzero()[0].tolist()
        raise RunError(
            f"row {rows[b][columns.ID]!r}: the data say that the reference gives {_response_name(r)} a "
            f"log-probability of {float(given[b, r]):.6g} nats, and it computes {float(computed[b, r]):.6g} (allowed "
            f"is a difference of {float(allowed[b, r]):.2g}). The column is another model's, or of other tokens: "
            "prompt, template and end token count. Compute it anew, or write `reference.cache: auto`."
        )


def _response_name(number: int) -> str:
    return (
        ("response 0 (the chosen one)", "response 1 (the rejected one)")[number] if number < 2 else f"response {number}"
    )


def fill_cache(
    recipe: Recipe,
    live: ModelReference,
    tokenizer: PreTrainedTokenizerBase,
    objective: Objective,
    sets: Sequence[Rows],
    *,
    rank: int = 0,
    world: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Cache, int]:
    """Compute what the recipe's cache lacks of these sets; returns the cache and how many responses were added.

    With several processes each computes its share of the rows. `progress` is told of its rows how many are done.
    """
    moving = _batch_decides(live.model, sets)
    if moving is not None:
        raise ConfigError(f"{moving}, so that no cache can hold it. {_SHORTER}")
    key = identity(recipe, live, tokenizer)
    place = folder(recipe, key)
    cache = prepare(place, key, about={"model": live.identity.get("model"), "reference": live.describe()["kind"]})
    pad, device = tokenizer.pad_token_id, next(live.model.parameters()).device
    collator = Collator(0 if pad is None else pad)
    seen = [LoadedRows(rows, objective) for rows in sets]
    mine = _distinct(seen)[rank::world]
    bounds = cut_by_tokens(np.array([length for length, _, _ in mine], np.int64), _TOKENS)
    groups = [mine[start:end] for start, end in pairwise(bounds)]
    batches = (collator([_whole(seen[which][number]) for _, which, number in group]) for group in groups if group)
    on_device = ({name: value.to(device) for name, value in batch.items()} for batch in batches)
    finished = 0

    def done(rows: int) -> None:
        nonlocal finished
        finished += rows
        if progress is not None:
            progress(finished, len(mine))

    added = fill(cache, on_device, live, done=done)
    return Cache.open(place, key), added


def _distinct(sets: Sequence[LoadedRows]) -> list[tuple[int, int, int]]:
    """Length in tokens, set and number of each row, the shortest first; one that another set holds too comes once."""
    seen, found = set[bytes](), []
    for which, rows in enumerate(sets):
        for number, row in enumerate(pieces(rows)):
            content = keys_of(row).tobytes()
            if row and content not in seen:
                seen.add(content)
                found.append((len(row[0].prompt) + sum(len(piece.response) for piece in row), which, number))
    return sorted(found)


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    responses, masks = _responses(row)
    return {columns.PROMPT_IDS: row[columns.PROMPT_IDS], columns.RESPONSES: responses, columns.MASKS: masks}
