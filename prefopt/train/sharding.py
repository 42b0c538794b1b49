"""Weights shared out over devices: FSDP 2 and DeepSpeed ZeRO 3.

Each device holds a part of every weight and gathers a layer when it runs, so that all processes must run the same
forward passes in the same order. What would let them part ways is refused here before anything is loaded.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from accelerate import Accelerator, DistributedType
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import TrainingArguments
from transformers.integrations import unset_hf_deepspeed_config

from prefopt.errors import ConfigError
from prefopt.scoring.reference import AdapterOffReference, FrozenTwinReference, ModelReference, Reference

if TYPE_CHECKING:
    from prefopt.config import Recipe

Sharding = Literal["FSDP", "ZeRO 3"]


def sharding_of(args: TrainingArguments) -> Sharding | None:
    """How a run with these arguments, started as it was, will share out weights; None when each device holds all."""
    if args.fsdp or _on("ACCELERATE_USE_FSDP"):
        return "FSDP"
    plugin = args.deepspeed_plugin
    return "ZeRO 3" if plugin is not None and plugin.zero_stage == 3 else None


def _on(name: str) -> bool:
    return os.environ.get(name, "false").lower() in ("1", "true")


def check_sharding(args: TrainingArguments, *, nonfinite: str, reference: Reference | None = None) -> None:
    """Raises: `ConfigError` for what cannot be had with weights that are shared out."""
    kind = sharding_of(args)
    if kind is None:
        return
    if kind == "FSDP":
        _check_fsdp(args)
    if nonfinite == "skip":
        raise ConfigError(
            f"safety.nonfinite: skip leaves rows out on one process, and with {kind} all must compute the same. Use "
            "safety.nonfinite: stop."
        )
    if isinstance(reference, FrozenTwinReference):
        raise ConfigError(
            f"the start of an adapter that training continues cannot stand in for the policy where {kind} shares out "
            "the weights. Fill a cache first, `prefopt reference RECIPE`; it then serves instead."
        )


def _check_fsdp(args: TrainingArguments) -> None:
    config = args.fsdp_config if args.fsdp else {}
    version = int(config.get("version", 2)) if args.fsdp else int(os.environ.get("FSDP_VERSION", "1"))
    if version != 2:
        raise ConfigError(
            "FSDP 1 keeps weights where scoring cannot read them. Use FSDP 2: `fsdp_version: 2` in the configuration "
            "of accelerate, as in recipes/accelerate/fsdp2.yaml."
        )
    if _on("FSDP_CPU_RAM_EFFICIENT_LOADING") or str(config.get("cpu_ram_efficient_loading", "")).lower() == "true":
        raise ConfigError(
            "cpu_ram_efficient_loading leaves every process but the first without the model that checks and the "
            "reference start from. Set it to false, as recipes/accelerate/fsdp2.yaml does."
        )


def check_sharded_recipe(args: TrainingArguments, recipe: Recipe) -> None:
    """Raises: `ConfigError` for settings of a recipe that weights shared out over devices rule out."""
    kind = sharding_of(args)
    if kind is None:
        return
    check_sharding(args, nonfinite=recipe.safety.nonfinite)
    if recipe.reference.sync is not None:
        raise ConfigError(f"reference.sync mixes whole weights, and {kind} shares them out. Leave it out.")
    if recipe.model.quantization is not None:
        raise ConfigError(f"model.quantization: weights of few bits are not shared out by {kind} here. Leave it out.")


def keep_whole(args: TrainingArguments) -> None:
    """Let models that are loaded from here on be whole: DeepSpeed would give each process a part of them at once, and
    neither the reference nor a cache could start from that. It shares them out when training begins.
    """
    if sharding_of(args) == "ZeRO 3":
        unset_hf_deepspeed_config()


def share_out(reference: Reference, accelerator: Accelerator, kind: Sharding) -> Reference:
    """The reference with a model of its own shared out as the policy will be; any other as it is.

    Raises: `ConfigError` where accelerate would go on without sharing anything out.
    """
    if kind == "FSDP" and accelerator.distributed_type != DistributedType.FSDP:
        raise ConfigError(
            "FSDP was asked for, and accelerate gives it to several GPUs only: here each process would train with the "
            "whole model. Use recipes/accelerate/ddp-cpu.yaml on CPUs, or no configuration for one device."
        )
    if not isinstance(reference, ModelReference) or isinstance(reference, AdapterOffReference):
        return reference
    if kind == "FSDP":
        from accelerate.utils import fsdp2_prepare_model

        return replace(reference, model=fsdp2_prepare_model(accelerator, reference.model).eval())
    from trl.models import prepare_deepspeed

    return replace(reference, model=prepare_deepspeed(reference.model, accelerator))


def part(value: Tensor) -> Tensor:
    """What this device holds of a tensor that may be shared out."""
    return value.to_local() if isinstance(value, DTensor) else value
