"""What a recipe would do, in the terms that decide it, from the recipe alone."""

from __future__ import annotations

import math
from pathlib import Path

from prefopt.config.paths import short
from prefopt.config.peek import row_count
from prefopt.config.recipe import Recipe
from prefopt.config.sections import SourceSection
from prefopt.config.training import value_of
from prefopt.losses import Loss, Objective
from prefopt.params import shown
from prefopt.scores import Need


def summary(recipe: Recipe) -> dict[str, str]:
    """Names and values for people, in the order of importance."""
    objective = recipe.objective()
    training = recipe.training
    adapter = recipe.model.adapter
    trained = "all weights trained" if adapter is None else f"{adapter.mode} {adapter.kind} adapter"
    plan = {
        "model": f"{short(recipe.model.name_or_path)}, {recipe.model.dtype}, {trained}",
        "loss": " + ".join(
            _loss(loss, weight) for loss, weight in zip(objective.losses, objective.weights, strict=True)
        ),
        "reference": _reference(recipe, objective),
        "data": "; ".join(_source(source) for source in recipe.data.train),
    }
    plan |= {f"eval {name}": _source(source) for name, source in recipe.data.eval.items()}
    length = recipe.data.max_length
    plan["length"] = "no limit" if length is None else f"{length} tokens, longer rows: {recipe.data.truncate}"
    plan["batch"] = _batch(recipe)
    plan["steps"] = _steps(recipe)
    rate, schedule = value_of(training, "learning_rate"), value_of(training, "lr_scheduler_type")
    plan["learning rate"] = f"{rate:g}, {schedule}, warm-up {value_of(training, 'warmup_steps'):g}"
    plan["output"] = short(training["output_dir"])
    return plan


def _loss(loss: Loss, weight: float) -> str:
    options = ", ".join(f"{name} {shown(value)}" for name, value in loss.params.written().items())
    weighed = "".join(f" weighed by {modifier.spec.name}" for modifier in loss.modifiers)
    return f"{'' if weight == 1 else f'{weight:g} x '}{loss.name}" + (f" ({options})" if options else "") + weighed


def _reference(recipe: Recipe, objective: Objective) -> str:
    if Need.REFERENCE not in objective.needs:
        return "none; the loss reads none"
    if recipe.reference.source == "model":
        return short(recipe.reference.name_or_path or "")
    start = recipe.model.adapter.start if recipe.model.adapter else None
    return "the model as it starts" + (f", with the adapter {short(start)}" if start else "")


def _source(source: SourceSection) -> str:
    rows = row_count(Path(source.path))
    split = f", split {source.split}" if source.split else ""
    return f"{short(source.path)}{split}" + (f" ({rows:,} rows)" if rows is not None else "")


def _per_step(recipe: Recipe) -> int:
    each, times = (value_of(recipe.training, f) for f in ("per_device_train_batch_size", "gradient_accumulation_steps"))
    return int(each * times)


def _batch(recipe: Recipe) -> str:
    times, tokens = value_of(recipe.training, "gradient_accumulation_steps"), recipe.scoring.tokens_per_batch
    size = f"{_per_step(recipe)} rows" if tokens is None else f"{tokens * times:,} tokens"
    return f"{size} per device" + (f", in {times} parts" if times > 1 else "")


def _steps(recipe: Recipe) -> str:
    steps, epochs = value_of(recipe.training, "max_steps"), value_of(recipe.training, "num_train_epochs")
    if steps > 0:
        return f"{steps:,}"
    counts = [row_count(Path(source.path)) for source in recipe.data.train]
    words = f"{epochs:g} epoch{'' if epochs == 1 else 's'}"
    if len(counts) > 1 or counts[0] is None or recipe.scoring.tokens_per_batch is not None:
        return words
    return f"{math.ceil(epochs * math.ceil(counts[0] / _per_step(recipe))):,} on one device, {words}"
