"""The `training` section: names of transformers.TrainingArguments, checked without importing transformers.

`_training_arguments.json` lists name, kinds of value and default of each; `make regenerate` writes it from the
installed version, and a test holds the two equal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefopt.errors import Problem, did_you_mean
from prefopt.params import shown

LIST_FILE = Path(__file__).with_name("_training_arguments.json")
_LIST: dict[str, Any] = json.loads(LIST_FILE.read_text(encoding="utf-8"))

VERSION: str = _LIST["transformers"]
"""The version of transformers the list was made from."""

NAMES: Mapping[str, Mapping[str, Any]] = _LIST["arguments"]
"""Name -> `kinds` of value (bool, int, float, str, list, dict, null), `default`, and `choices` where listed."""

OWNED: Mapping[str, str] = {
    "accelerator_config": "prefopt cuts and shares batches by itself",
    "auto_find_batch_size": "the number of prompts in a step would change during the run",
    "average_tokens_across_devices": "losses are averaged over prompts, counted across devices, micro-batches included",
    "batch_eval_metrics": "metrics come from the loss, as sums and counts",
    "do_eval": "training.eval_strategy says when to evaluate",
    "do_predict": "`prefopt train` trains",
    "do_train": "`prefopt train` trains",
    "eval_accumulation_steps": "metrics come from the loss, as sums and counts; no predictions are kept",
    "eval_do_concat_batches": "metrics come from the loss, as sums and counts; no predictions are kept",
    "eval_use_gather_object": "metrics come from the loss, as sums and counts; no predictions are kept",
    "hub_token": "a recipe is kept with the run; log in to the hub by its own command instead",
    "include_for_metrics": "metrics come from the loss, as sums and counts; no predictions are kept",
    "include_num_input_tokens_seen": "num_tokens is always logged",
    "label_names": "prefopt's collator names the columns of a batch",
    "label_smoothing_factor": "it smooths next-token labels; for flipped preferences see the loss's own options",
    "length_column_name": "scoring.tokens_per_batch draws rows of similar length together",
    "local_rank": "the launcher sets it",
    "logging_nan_inf_filter": "a NaN is never hidden; safety.nonfinite says what happens",
    "neftune_noise_alpha": "noise in the embeddings would enter the log-probabilities that are compared",
    "prediction_loss_only": "evaluation always reports all metrics",
    "remove_unused_columns": "prefopt's collator decides which columns reach the model",
    "resume_from_checkpoint": "say `prefopt train RECIPE --resume` or `--resume-from CHECKPOINT`",
}
"""Arguments that prefopt sets itself, or that would have no effect, and why."""

_CHOICES: Mapping[str, tuple[str, ...]] = {"train_sampling_strategy": ("random", "sequential")}
"""What prefopt supports of an argument's values, where transformers lists none or more."""

_POSITIVE = {
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "num_train_epochs",
    "learning_rate",
}
_NOT_NEGATIVE = {"weight_decay", "max_grad_norm", "warmup_steps", "seed", "data_seed", "adam_epsilon"}
_BELOW_ONE = {"adam_beta1", "adam_beta2"}
_WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text", "list": "a list"}
_WORDS |= {"dict": "a mapping", "null": "null"}


def training_problems(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """The usable arguments, and what is wrong with the others. Problems carry the path below `training`.

    null where it is no value of its own means the default. A decimal that is whole (`1e3` steps) is converted.
    """
    good: dict[str, Any] = {}
    found: list[Problem] = []
    for name, value in values.items():
        text = _refused(name, value)
        if text:
            found.append(Problem(text, (name,)))
        elif value is not None or "null" in NAMES[name]["kinds"]:
            good[name] = _converted(value, NAMES[name]["kinds"])
    return good, found


def choices_of(name: str) -> tuple[str, ...]:
    """The values an argument may have, where they are listed."""
    return _CHOICES.get(name) or tuple(NAMES[name].get("choices", ()))


def value_of(values: Mapping[str, Any], name: str) -> Any:
    """The argument as written, or its default."""
    return values.get(name, NAMES[name]["default"])


def unused_arguments(values: Mapping[str, Any]) -> dict[str, str]:
    """Written arguments that another written argument leaves without effect, and why."""
    unused: dict[str, str] = {}
    steps = values.get("max_steps", -1)
    if isinstance(steps, int) and steps > 0:
        unused["num_train_epochs"] = f"training.max_steps is {steps}"
    for what in ("eval", "save", "logging"):
        strategy = value_of(values, f"{what}_strategy")
        if strategy != "steps":
            unused[f"{what}_steps"] = f"training.{what}_strategy is {strategy}"
    if value_of(values, "eval_strategy") == "no":
        unused["eval_delay"] = "training.eval_strategy is no"
    if value_of(values, "save_strategy") == "no":
        unused["save_total_limit"] = "training.save_strategy is no"
    if not value_of(values, "load_best_model_at_end") and value_of(values, "save_strategy") != "best":
        unused |= dict.fromkeys(("metric_for_best_model", "greater_is_better"), "no best model is kept")
    return {name: why for name, why in unused.items() if values.get(name) is not None}


def _refused(name: str, value: Any) -> str:
    if name in OWNED:
        return f"training.{name} cannot be set: {OWNED[name]}."
    if name not in NAMES:
        names = f"Names are those of transformers.TrainingArguments ({VERSION})."
        return f"training: unknown option '{name}'.{did_you_mean(name, NAMES)} {names}"
    kinds, choices = NAMES[name]["kinds"], choices_of(name)
    if value is not None and not any(_is(value, kind) for kind in kinds):
        hint = " Leave the quotes out." if isinstance(value, str) and _numeric(value) else ""
        return f"training.{name} must be {' or '.join(_WORDS[kind] for kind in kinds)}; got {shown(value)}.{hint}"
    if choices and isinstance(value, str) and value not in choices:
        guess = did_you_mean(value, choices)
        listed = f" Choices: {', '.join(choices)}." if len(choices) <= 12 or not guess else ""
        return f"training.{name}: unknown choice {shown(value)}.{guess}{listed}"
    return _out_of_range(name, value)


def _out_of_range(name: str, value: Any) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return ""
    if not math.isfinite(value):
        return f"training.{name} must be a finite number; got {shown(value)}."
    if name in _POSITIVE and value <= 0:
        why = " Nothing would be learned." if name == "learning_rate" else ""
        return f"training.{name} must be greater than 0; got {shown(value)}.{why}"
    if name in _NOT_NEGATIVE | _BELOW_ONE and value < 0:
        return f"training.{name} must be at least 0; got {shown(value)}."
    if name in _BELOW_ONE and value >= 1:
        return f"training.{name} must be less than 1; got {shown(value)}."
    if name == "max_steps" and value != -1 and value < 1:
        return f"training.max_steps must be at least 1, or -1 to go by epochs; got {shown(value)}."
    return ""


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "null":
            return value is None
        case "bool":
            return isinstance(value, bool)
        case "int":
            return isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
        case "float":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "str":
            return isinstance(value, str)
        case "list":
            return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        case _:
            return isinstance(value, Mapping)


def _converted(value: Any, kinds: list[str]) -> Any:
    if isinstance(value, float) and "int" in kinds and "float" not in kinds:
        return int(value)
    if isinstance(value, tuple):
        return list(value)
    return value


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.lower() in {"true", "false"}
    return True
