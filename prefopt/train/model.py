"""The policy: tokenizer, weights, dtype, adapter; dropout off."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from prefopt.demo import demo_model_path
from prefopt.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from prefopt.config.recipe import AdapterSection, ModelSection

logger = logging.getLogger(__name__)

Quantization = Literal["4bit", "8bit"]


def model_path(name_or_path: str) -> str:
    """A hub id or folder as transformers takes it; `demo:NAME` becomes the folder inside the package."""
    return str(demo_model_path(name_or_path)) if name_or_path.startswith("demo:") else name_or_path


def load_tokenizer(
    name_or_path: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase:
    """Raises: `ConfigError` when there is no tokenizer at that place."""
    try:
        return AutoTokenizer.from_pretrained(
            model_path(name_or_path), revision=revision or "main", trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"model.name_or_path: no tokenizer could be loaded from '{name_or_path}': {_first_line(error)}"
        ) from error


def load_model(
    name_or_path: str,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    attn_implementation: str | None = None,
    trust_remote_code: bool = False,
    quantization: Quantization | None = None,
) -> PreTrainedModel:
    """A causal language model with every dropout at 0, weights from safetensors.

    With `quantization` its linear layers, but not the head, hold 4 (NF4) or 8 bits a weight and compute in `dtype`.
    Raises: `ConfigError` when there is no such model, no tensor of it can be used, or bitsandbytes is missing.
    """
    options = {} if quantization is None else {"quantization_config": _quantized(quantization, dtype)}
    path = model_path(name_or_path)
    try:
        config = AutoConfig.from_pretrained(path, revision=revision or "main", trust_remote_code=trust_remote_code)
        switch_off_dropout(config)
        return AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            revision=revision or "main",
            dtype=getattr(torch, dtype),
            attn_implementation=attn_implementation,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            **options,
        )
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(
            f"model.name_or_path: no model could be loaded from '{name_or_path}': {_first_line(error)}"
        ) from error


def _quantized(kind: Quantization, dtype: str) -> Any:
    if find_spec("bitsandbytes") is None:
        raise ConfigError(
            f"model.quantization: {kind} needs bitsandbytes, which is not installed: pip install "
            "'prefopt-train[quantization]'."
        )
    from transformers import BitsAndBytesConfig

    if kind == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def switch_off_dropout(config: Any) -> list[str]:
    """Set every dropout rate of a model config to 0 and return the names of those that were not.

    Policy and reference must agree before the first step, which dropout in training mode prevents.
    """
    changed = []
    for section in [config, *(value for value in vars(config).values() if hasattr(value, "to_dict"))]:
        for name, value in list(vars(section).items()):
            if ("dropout" in name or "pdrop" in name) and isinstance(value, float) and value > 0:
                setattr(section, name, 0.0)
                changed.append(name)
    if changed:
        logger.info("dropout switched off in the model: %s", ", ".join(changed))
    return changed


def load_policy(section: ModelSection) -> Any:
    """The model that is trained: full weights, or with the adapter that the recipe asks for."""
    model = load_model(
        section.name_or_path,
        revision=section.revision,
        dtype=section.dtype,
        attn_implementation=section.attn_implementation,
        trust_remote_code=section.trust_remote_code,
        quantization=section.quantization,
    )
    return model if section.adapter is None else with_adapter(model, section.adapter)


def with_adapter(model: PreTrainedModel, adapter: AdapterSection) -> Any:
    """New adapter, a started one to continue, or a started one merged in before a new one.

    Raises: `ConfigError` when the starting adapter cannot be read or the target modules do not exist.
    """
    from peft import LoraConfig, PeftModel, TaskType, get_peft_model

    try:
        if adapter.mode == "continue":
            return PeftModel.from_pretrained(model, str(adapter.start), is_trainable=True)
        if adapter.mode == "merge":
            model = merged_start(model, str(adapter.start))
        _find_modules(model, adapter.modules_to_save or ())
        config = LoraConfig(
            task_type=TaskType.CAUSAL_LM,
            r=adapter.r,
            lora_alpha=adapter.alpha,
            lora_dropout=adapter.dropout,
            target_modules=adapter.target_modules,
            modules_to_save=adapter.modules_to_save,
            use_dora=adapter.kind == "dora",
            use_rslora=adapter.kind == "rslora",
        )
        adapted = get_peft_model(model, config)
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.adapter: {_first_line(error)}") from error
    _refuse_tied_targets(model, adapted)
    return adapted


def _find_modules(model: nn.Module, names: Iterable[str]) -> None:
    """Raises: `ConfigError` for a name that is no module's, which PEFT would pass over."""
    for name in names:
        if not any(found == name or found.endswith(f".{name}") for found, _ in model.named_modules()):
            ends = {found.split(".")[-1] for found, _ in model.named_modules()}
            raise ConfigError(
                f"model.adapter.modules_to_save: {type(model).__name__} has no module '{name}'."
                f"{did_you_mean(name, sorted(ends))}"
            )


def merged_start(model: PreTrainedModel, start: str) -> Any:
    """The model with a trained adapter in its weights."""
    from peft import PeftModel

    return PeftModel.from_pretrained(model, start).merge_and_unload()


def _refuse_tied_targets(model: PreTrainedModel, adapted: Any) -> None:
    """An adapter on one of two tied matrices cannot be merged: the other one would change with it."""
    if not getattr(model.config.get_text_config(), "tie_word_embeddings", False):
        return
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    both = [name.split(".")[-1] for name, module in adapted.named_modules() if module in ends and is_adapted(module)]
    if both:
        raise ConfigError(
            f"model.adapter.target_modules: {', '.join(sorted(set(both)))} is tied to the other end of the model, and "
            "an adapter on it could not be merged. Leave it out, or train it in full: modules_to_save: [embed_tokens]."
        )


def is_adapted(module: Any) -> bool:
    """Whether PEFT has put an adapter on the module."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return isinstance(module, BaseTunerLayer)


def trainable(model: nn.Module) -> tuple[int, int]:
    """Trainable and all parameters.

    Raises: `ConfigError` when nothing is trainable.
    """
    some = sum(p.numel() for p in model.parameters() if p.requires_grad)
    everything = sum(p.numel() for p in model.parameters())
    if some == 0:
        raise ConfigError("no parameter is trainable: the adapter matches no module, or every weight is frozen.")
    return some, everything


def fingerprint(model: nn.Module, *, adapters: bool = True) -> str:
    """A hash of names, shapes, dtypes and all values of each tensor, with or without adapters and their scaling."""
    digest = hashlib.sha256()
    state = model.state_dict()
    if not adapters:  # under the names of the model without them
        kept = {name: value for name, value in state.items() if "lora_" not in name and "modules_to_save" not in name}
        state = {re.sub(r"^base_model\.model\.|\.base_layer|\.original_module", "", n): v for n, v in kept.items()}
    else:
        for name, module in model.named_modules():
            if isinstance(scaling := getattr(module, "scaling", None), dict):  # by adapter: alpha over r, or its root
                digest.update(f"{name} {sorted(scaling.items())}".encode())
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(_checksum(tensor.detach()).to_bytes(8, "big", signed=True))
    return digest.hexdigest()[:16]


_ODD = 0x1E3779B97F4A7C15


def _checksum(tensor: torch.Tensor, *, count: int = 2**20) -> int:
    """sum_i (2 i + 1) K w_i modulo 2^64 over the bits of a tensor, eight bytes a word: one word changed always shows.

    Computed where the tensor is, `count` values at a time.
    """
    flat = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).reshape(-1)
    total, begin = torch.zeros((), dtype=torch.int64, device=flat.device), 0
    for part in flat.split(count):
        octets = part.clone().view(torch.uint8)  # a copy begins where words may
        words = nn.functional.pad(octets, (0, -len(octets) % 8)).view(torch.int64)
        places = torch.arange(begin, begin + len(words), device=flat.device)
        total += (words * (2 * places + 1) * _ODD).sum()
        begin += len(words)
    return int(total)
