"""What a trainer must not start with: settings under which it would do something else than it says."""

from __future__ import annotations

import logging
from typing import Literal

from torch import nn
from transformers import TrainingArguments

from prefopt.errors import ConfigError
from prefopt.losses import Objective
from prefopt.scoring.heads import causal_model

logger = logging.getLogger(__name__)

Coupling = Literal["micro", "step"]
_NARROW = 8  # prompts: below it a window is worth a word


def refuse_data_parallel(args: TrainingArguments) -> None:
    """Raises: `ConfigError` when one process sees several devices, which Trainer would answer with DataParallel."""
    if args.n_gpu > 1:
        raise ConfigError(
            f"{args.n_gpu} devices are visible to one process. Start one process per device, "
            f"`accelerate launch --num_processes {args.n_gpu} -m prefopt train RECIPE`, or show it one with "
            "CUDA_VISIBLE_DEVICES=0."
        )


def refuse_unsupported(args: TrainingArguments) -> None:
    """Raises: `ConfigError` for arguments that this trainer would accept and ignore."""
    if args.train_sampling_strategy not in ("random", "sequential"):
        raise ConfigError(
            f"train_sampling_strategy must be random or sequential; got '{args.train_sampling_strategy}'."
        )
    if args.label_smoothing_factor:
        raise ConfigError("label_smoothing_factor has no effect here; the loss `dpo` has label_smoothing of its own.")
    if args.neftune_noise_alpha:
        raise ConfigError("neftune_noise_alpha is not supported: policy and reference would read different embeddings.")


def warn_of_dropout(model: nn.Module) -> None:
    """Say that a dropout is active outside of adapters: policy and reference then differ from the first step."""
    active = [name for name, module in model.named_modules() if isinstance(module, nn.Dropout) and module.p > 0]
    own = [name for name in active if "lora_" not in name]
    if own:
        logger.warning("dropout is active in %s: policy and reference will differ before the first step.", own[0])


def warn_of_router(model: nn.Module) -> None:
    """Say that a mixture of experts asks for an auxiliary loss, which is not trained here."""
    if getattr(causal_model(model).config, "output_router_logits", False):
        logger.warning(
            "the model's config has output_router_logits: true, for an auxiliary loss that balances its experts; "
            "prefopt trains the preference loss alone."
        )


def refuse_dropout(model: nn.Module) -> None:
    """Raises: `ConfigError` when the model would not say the same twice, as `coupling: step` needs."""
    active = [name for name, module in model.named_modules() if isinstance(module, nn.Dropout) and module.p > 0]
    if active:
        raise ConfigError(
            f"scoring.coupling: step scores each prompt twice, and the dropout in {active[0]} would make the two "
            "differ. Set it to 0, or use coupling: micro."
        )


def check_window(
    objective: Objective, args: TrainingArguments, coupling: Coupling, tokens_per_batch: int | None = None
) -> None:
    """Raises: `ConfigError` when a batch-coupled loss would see so few prompts that it is its plain relative, or a
    number of them that changes from batch to batch.
    """
    compared = [loss for loss in objective.losses if loss.window]
    if tokens_per_batch is not None and compared:
        if coupling == "micro":
            raise ConfigError(
                f"loss '{compared[0].name}' compares the prompts of a batch, and with scoring.tokens_per_batch their "
                "number changes from batch to batch. Set scoring.coupling: step, or leave tokens_per_batch out."
            )
        return
    micro = args.per_device_train_batch_size * args.world_size
    whole = micro * args.gradient_accumulation_steps
    for loss in compared:
        window = whole if coupling == "step" else micro
        alone = loss.spec.window_per_rank(loss.params)
        window = window // args.world_size if alone else window
        if window < loss.window:
            advice = f" set scoring.coupling: step to compare the {whole} prompts of a step," if whole > window else ""
            raise ConfigError(
                f"loss '{loss.name}' compares prompts with one another, and training.per_device_train_batch_size "
                f"{args.per_device_train_batch_size} on {args.world_size} process(es) shows it {window} at a time: it "
                f"would silently be no more than its plain relative. Raise the batch,{advice} or choose another loss."
            )
        if window < _NARROW:
            logger.warning(
                "loss '%s' compares only %d prompts with one another; a wider window (a larger batch, or "
                "scoring.coupling: step) makes it more than noise.",
                loss.name,
                window,
            )
