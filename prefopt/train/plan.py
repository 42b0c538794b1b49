"""The effective plan: what is about to happen, in the terms that decide it. Printed before the first step and saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainingArguments

from prefopt.config import Recipe
from prefopt.data.tokenize import Prepared
from prefopt.losses import Objective
from prefopt.train.model import trainable
from prefopt.train.trainer import PreferenceTrainer


def effective_plan(
    recipe: Recipe, trainer: PreferenceTrainer, prepared: Mapping[str, Prepared], objective: Objective
) -> dict[str, Any]:
    """What is about to happen, in the terms that decide it."""
    args, model = trainer.args, trainer.model
    some, everything = trainable(model)
    rows = len(prepared["train"].rows)
    batch = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    per_epoch = rows // batch if args.dataloader_drop_last else -(-rows // batch)
    steps = args.max_steps if args.max_steps > 0 else -(-int(args.num_train_epochs * per_epoch * 1000) // 1000)
    head = trainer.scorer.head(model)
    return {
        "objective": ", ".join(_objective_words(objective)),
        "model": recipe.model.name_or_path,
        "parameters": f"{everything:,}, of which {some:,} trained ({some / everything:.1%})",
        "adapter": "none"
        if recipe.model.adapter is None
        else f"{recipe.model.adapter.mode}, {recipe.model.adapter.kind}",
        "precision": f"weights {recipe.model.dtype}, products {_precision(args, recipe)}",
        "reference": trainer.reference.describe(),
        "rows": {name: len(p.rows) for name, p in prepared.items()},
        "rows per step": f"{batch} ({args.per_device_train_batch_size} per device x {args.gradient_accumulation_steps} "
        f"accumulation x {args.world_size} processes)",
        "steps": steps,
        "learning rate": f"{args.learning_rate:g}, {getattr(args.lr_scheduler_type, 'value', args.lr_scheduler_type)}",
        "log-probabilities": f"{'plain' if head is None else 'chunked'}, {_LAYOUTS[trainer.scorer.settled(model)]}",
        "device": str(args.device),
    }


_LAYOUTS = {
    "packed": "one row per prompt with all its responses, without padding",
    "padded": "one row per prompt with all its responses",
    "separate": "one row per response",
    None: "one row per prompt with all its responses where the model allows it",
}


def _objective_words(objective: Objective) -> list[str]:
    words = []
    for loss, weight in zip(objective.losses, objective.weights, strict=True):
        options = ", ".join(f"{name} {value}" for name, value in loss.params.written().items())
        words.append(f"{'' if weight == 1 else f'{weight:g} x '}{loss.name}" + (f" ({options})" if options else ""))
    return words


def _precision(args: TrainingArguments, recipe: Recipe) -> str:
    return "bfloat16" if args.bf16 else "float16" if args.fp16 else recipe.model.dtype
