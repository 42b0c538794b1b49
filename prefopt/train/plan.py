"""The effective plan: what is about to happen, in the terms that decide it. Printed before the first step and saved."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import TrainingArguments

from prefopt.config import Recipe
from prefopt.data.sampler import BatchSampler, TokenSampler
from prefopt.data.tokenize import Prepared
from prefopt.losses import Objective
from prefopt.scoring.layout import padding
from prefopt.train.model import trainable
from prefopt.train.trainer import PreferenceTrainer


def effective_plan(
    recipe: Recipe, trainer: PreferenceTrainer, prepared: Mapping[str, Prepared], objective: Objective
) -> dict[str, Any]:
    """What is about to happen, in the terms that decide it."""
    args, model = trainer.args, trainer.model
    some, everything = trainable(model)
    sampler = trainer.train_sampler()
    per_epoch = -(-len(sampler) // args.gradient_accumulation_steps)
    steps = args.max_steps if args.max_steps > 0 else -(-int(args.num_train_epochs * per_epoch * 1000) // 1000)
    return {
        "objective": ", ".join(_objective_words(objective)),
        "model": recipe.model.name_or_path,
        "parameters": f"{everything:,}, of which {some:,} trained ({some / everything:.1%})",
        "adapter": "none"
        if recipe.model.adapter is None
        else f"continue, {recipe.model.adapter.start}"
        if recipe.model.adapter.mode == "continue"
        else f"{recipe.model.adapter.mode}, {recipe.model.adapter.kind}",
        "precision": f"weights {recipe.model.dtype}, products {_precision(args, recipe)}",
        "reference": trainer.reference.describe() | _movement(recipe),
        "rows": {name: len(p.rows) for name, p in prepared.items()},
        "rows per step": _rows_per_step(sampler, args),
        "steps": steps,
        "learning rate": f"{args.learning_rate:g}, {getattr(args.lr_scheduler_type, 'value', args.lr_scheduler_type)}",
        "log-probabilities": _log_probabilities(trainer),
        "device": str(args.device),
    }


_LAYOUTS = {
    "packed": "one row per prompt with all its responses, without padding",
    "padded": "one row per prompt with all its responses",
    "separate": "one row per response",
    None: "one row per prompt with all its responses where the model allows it",
}


def _movement(recipe: Recipe) -> dict[str, str]:
    sync = recipe.reference.sync
    return {} if sync is None else {"moves": f"every {sync.every} steps, {sync.mix:g} of the way to the policy"}


def _rows_per_step(sampler: BatchSampler | TokenSampler, args: TrainingArguments) -> str:
    times = f"{args.gradient_accumulation_steps} accumulation x {args.world_size} processes"
    if isinstance(sampler, BatchSampler):
        batch = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        return f"{batch} ({args.per_device_train_batch_size} per device x {times})"
    sizes, batches = np.diff(sampler.bounds), args.gradient_accumulation_steps * args.world_size
    alone = f"; {sampler.too_long} longer rows stand alone" if sampler.too_long else ""
    each = f"{sizes.min()} to {sizes.max()} per device, of {sampler.budget:,} tokens{alone}"
    return f"about {sizes.mean() * batches:.0f} ({each}, x {times})"


def settled_plan(trainer: PreferenceTrainer, *, most: int = 200) -> dict[str, str]:
    """What the first rows decided: how rows are laid out, and which share of the computed positions of the first
    batches will hold no token.
    """
    way, sums = trainer.scorer.settled(trainer.model), torch.zeros(2)
    for picks in itertools.islice(trainer.train_sampler(), most) if way != "packed" else ():  # which pads nothing
        rows = [trainer.train_dataset[pick.row] for pick in picks]
        sums += torch.stack(padding(trainer.collator(rows), way))
    share = float(sums[0] / sums[1].clamp(min=1))
    return {"log-probabilities": _log_probabilities(trainer), "padding": f"{share:.1%} of the computed positions"}


def _log_probabilities(trainer: PreferenceTrainer) -> str:
    scorer, model = trainer.scorer, trainer.model
    plain = scorer.head(model) is None
    backend = "plain" if plain else "TRL's kernel" if scorer.backend == "trl" else "chunked"
    return f"{backend}, {_LAYOUTS[scorer.settled(model)]}"


def _objective_words(objective: Objective) -> list[str]:
    words = []
    for loss, weight in zip(objective.losses, objective.weights, strict=True):
        options = ", ".join(f"{name} {value}" for name, value in loss.params.written().items())
        words.append(f"{'' if weight == 1 else f'{weight:g} x '}{loss.name}" + (f" ({options})" if options else ""))
    return words


def _precision(args: TrainingArguments, recipe: Recipe) -> str:
    return "bfloat16" if args.bf16 else "float16" if args.fp16 else recipe.model.dtype
