"""Names from other trainers, and what to write here instead. One table; a line for a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import get_args

from prefopt.config.sections import SECTIONS
from prefopt.config.training import NAMES
from prefopt.errors import ConfigError
from prefopt.losses import loss_names, loss_spec
from prefopt.params import KeyPath, Settings

_TRL = {
    "loss_type": "write `loss: {name: ...}`; `prefopt losses` lists them",
    "loss_weights": "give `loss` a list, each loss with its own `weight`",
    "rpo_alpha": "write `loss: {name: irpo, alpha: ...}`, with `nll_norm: batch_tokens` for the same numbers",
    "max_prompt_length": "data.max_length bounds prompt and response together, and data.truncate says which end is cut",
    "max_completion_length": "data.max_length bounds prompt and response together; data.truncate says what is cut",
    "max_target_length": "data.max_length bounds prompt and response together; data.truncate says what is cut",
    "truncation_mode": "write data.truncate: drop, response, prompt_start or error",
    "label_pad_token_id": "nothing to set: what is scored goes by masks, not by label ids",
    "padding_value": "nothing to set: masks come from lengths, not from ids",
    "pad_token": "nothing to set: masks come from lengths, so any padding id does",
    "pad_to_multiple_of": "nothing to set: a batch is as wide as its longest row",
    "padding_free": "nothing to set: scoring chooses its layout (scoring.layout)",
    "dataset_num_proc": "write data.num_proc",
    "dataset_name": "write data.train: {path: ...}",
    "dataset_config": "write data.train: {path: ..., name: ...}",
    "dataset_train_split": "write data.train: {path: ..., split: ...}",
    "dataset_test_split": "write data.eval: {heldout: {path: ..., split: ...}}",
    "dataset_streaming": "there is none: data sets are tokenized once, before training",
    "train_dataset": "write data.train",
    "eval_dataset": "write data.eval: {heldout: {path: ...}}",
    "torch_dtype": "write model.dtype for stored weights, training.bf16 for compute",
    "model_name_or_path": "write model.name_or_path",
    "model_revision": "write model.revision",
    "model_init_kwargs": "write model.dtype, model.revision and model.attn_implementation",
    "ref_model": "write reference: {source: model, name_or_path: ...}",
    "ref_model_name_or_path": "write reference: {source: model, name_or_path: ...}",
    "ref_model_init_kwargs": "the reference is loaded as the model is; reference.name_or_path names it",
    "precompute_ref_log_probs": "write reference.cache",
    "precompute_ref_batch_size": "write reference.cache; the batch size does not matter to it",
    "reference_free": "write reference_free under `loss: {name: dpo}`, or take a loss without one, such as simpo",
    "sync_ref_model": "write reference.sync: {every: ..., mix: ...}",
    "ref_model_mixup_alpha": "write reference.sync: {mix: ...}",
    "ref_model_sync_steps": "write reference.sync: {every: ...}",
    "force_use_ref_model": "write reference: {source: model, name_or_path: ...}",
    "use_peft": "write model.adapter: {mode: new, r: ...}",
    "peft_config": "write model.adapter: {mode: new, r: ..., alpha: ...}",
    "lora_r": "write model.adapter.r",
    "lora_alpha": "write model.adapter.alpha",
    "lora_dropout": "write model.adapter.dropout",
    "lora_target_modules": "write model.adapter.target_modules",
    "lora_target_parameters": "write model.adapter.target_modules; single parameters cannot be named",
    "lora_modules_to_save": "write model.adapter.modules_to_save",
    "lora_task_type": "nothing to set: the model is a causal language model",
    "use_rslora": "write model.adapter: {kind: rslora}",
    "use_dora": "write model.adapter: {kind: dora}",
    "load_in_8bit": "write model.quantization: 8bit",
    "load_in_4bit": "write model.quantization: 4bit",
    "bnb_4bit_quant_type": "write model.quantization: 4bit",
    "bnb_4bit_quant_storage": "write model.quantization: 4bit",
    "use_bnb_nested_quant": "write model.quantization: 4bit",
    "ld_alpha": "it is the option ld_alpha of `loss: {name: ld_dpo}`",
    "f_divergence_type": "write `loss: {name: f_dpo, divergence: ...}`",
    "f_alpha_divergence_coef": "write loss.alpha of `{name: f_dpo, divergence: alpha}`, which is 1 minus that number",
    "use_weighting": "write loss.modify: [wpo]",
    "discopop_tau": "it is the option tau of `loss: {name: discopop}`",
    "simpo_gamma": "write loss.gamma_beta_ratio of `loss: {name: simpo}`, which is gamma / beta",
    "cpo_alpha": "give `loss` a list, and the nll part that weight",
    "router_aux_loss_coef": "there is none: only the preference loss is trained",
    "disable_dropout": "nothing to set: dropout is off in policy and reference",
    "activation_offloading": "there is none; training.gradient_checkpointing saves activations",
    "use_logits_to_keep": "nothing to set: logits are never held in full (scoring.backend)",
    "use_liger_loss": "nothing to set: logits are never held in full (scoring.backend)",
    "generate_during_eval": "write evaluation.generate: {max_new_tokens: ...}",
    "tools": "a column of the rows, not a setting",
    "is_encoder_decoder": "nothing to set: the model is a causal language model",
    "ignore_bias_buffers": "nothing to set",
    "base_model_attribute_name": "nothing to set",
}
_TRANSFORMERS = {
    "tokenizer": "nothing to set: the model's own tokenizer is used; data.chat_template replaces its template",
    "processing_class": "nothing to set: the model's own tokenizer is used; data.chat_template replaces its template",
    "evaluation_strategy": "write training.eval_strategy",
    "warmup_ratio": "write training.warmup_steps; a number below 1 is a share of all steps",
    "no_cuda": "write training.use_cpu",
    "per_gpu_train_batch_size": "write training.per_device_train_batch_size",
    "per_gpu_eval_batch_size": "write training.per_device_eval_batch_size",
    "group_by_length": "rows are drawn at random; drawing rows of similar length together is not available yet",
    "overwrite_output_dir": "say `prefopt train RECIPE --overwrite`",
    "resume_from_checkpoint": "say `prefopt train RECIPE --resume` or `--resume-from CHECKPOINT`",
    "save_safetensors": "nothing to set: weights are always saved as safetensors",
    "logging_dir": "trackers choose their own folder; metrics.jsonl is in training.output_dir",
    "half_precision_backend": "nothing to set; training.bf16 and training.fp16 switch autocast on",
    "fp16_backend": "nothing to set; training.bf16 and training.fp16 switch autocast on",
    "fp16_opt_level": "nothing to set; training.bf16 and training.fp16 switch autocast on",
    "use_mps_device": "nothing to set: an accelerator is used where there is one",
    "use_ipex": "nothing to set",
    "push_to_hub_token": "write training.hub_token",
    "push_to_hub_model_id": "write training.hub_model_id",
    "include_tokens_per_second": "nothing to set: tokens_per_second is always logged",
    "torchdynamo": "write training.torch_compile",
}
_AXOLOTL = {
    "base_model": "write model.name_or_path",
    "base_model_config": "write model.name_or_path",
    "tokenizer_config": "nothing to set: the model's own tokenizer is used",
    "tokenizer_type": "nothing to set: the model's own tokenizer is used",
    "model_type": "nothing to set: the model's own configuration says it",
    "datasets": "write data.train: [{path: ...}, ...]",
    "test_datasets": "write data.eval: {heldout: {path: ...}}",
    "val_set_size": "name a held-out file under data.eval; none is split off by itself",
    "rl": "write `loss: {name: ...}`; `prefopt losses` lists them",
    "rl_beta": "write loss.beta",
    "dpo_beta": "write loss.beta",
    "dpo_label_smoothing": "write loss.label_smoothing",
    "dpo_use_weighting": "write loss.modify: [wpo]",
    "sequence_len": "write data.max_length",
    "micro_batch_size": "write training.per_device_train_batch_size",
    "num_epochs": "write training.num_train_epochs",
    "lr_scheduler": "write training.lr_scheduler_type",
    "warmup": "write training.warmup_steps",
    "adapter": "write model.adapter: {mode: new, r: ...}",
    "lora_model_dir": "write model.adapter: {mode: continue, start: ...}",
    "lora_target_linear": "write model.adapter.target_modules: all-linear",
    "peft_use_rslora": "write model.adapter: {kind: rslora}",
    "peft_use_dora": "write model.adapter: {kind: dora}",
    "sample_packing": "there is none for pairs",
    "flash_attention": "write model.attn_implementation: flash_attention_2",
    "sdp_attention": "write model.attn_implementation: sdpa",
    "special_tokens": "nothing to set: the model's own tokenizer is used",
    "train_on_inputs": "there is none: only responses are scored (data.train_on)",
    "wandb_project": "write training.report_to: wandb; the tracker reads its project from the environment",
}
_LLAMA_FACTORY = {
    "stage": "nothing to set; `loss: {name: ...}` says what is trained",
    "do_train": "nothing to set: `prefopt train` trains",
    "finetuning_type": "write model.adapter: {mode: new}, or leave it out to train all weights",
    "pref_loss": "write `loss: {name: ...}`; `prefopt losses` lists them",
    "pref_beta": "write loss.beta",
    "pref_ftx": "give `loss` a list, and the nll part that weight",
    "dpo_ftx": "give `loss` a list, and the nll part that weight",
    "dpo_loss": "write `loss: {name: ...}`; `prefopt losses` lists them",
    "dpo_smoothing": "write loss.label_smoothing",
    "dataset": "write data.train: {path: ...}",
    "dataset_dir": "write data.train: {path: ...}, relative to the recipe",
    "cutoff_len": "write data.max_length",
    "template": "write data.template, or data.chat_template for another template",
    "preprocessing_num_workers": "write data.num_proc",
    "adapter_name_or_path": "write model.adapter: {mode: continue, start: ...}",
    "lora_rank": "write model.adapter.r",
    "lora_target": "write model.adapter.target_modules",
    "quantization_bit": "write model.quantization: 4bit",
    "flash_attn": "write model.attn_implementation",
    "max_samples": "name a smaller file, or set training.max_steps",
}
_TORCHTUNE = {
    "checkpointer": "write model.name_or_path and training.output_dir",
    "loss_fn": "write `loss: {name: ...}`; `prefopt losses` lists them",
    "lr_scheduler_name": "write training.lr_scheduler_type",
    "optimizer": "write training.optim",
    "lr": "write training.learning_rate",
    "batch_size": "write training.per_device_train_batch_size",
    "epochs": "write training.num_train_epochs",
    "max_seq_len": "write data.max_length",
    "max_steps_per_epoch": "write training.max_steps",
    "enable_activation_checkpointing": "write training.gradient_checkpointing",
    "lora_rank": "write model.adapter.r",
    "lora_attn_modules": "write model.adapter.target_modules",
    "metric_logger": "write training.report_to",
    "device": "write training.use_cpu, or choose devices with `accelerate launch`",
}
FOREIGN: Mapping[str, tuple[str, str]] = {
    name: (owner, here)
    for owner, table in (
        ("torchtune", _TORCHTUNE),
        ("LLaMA-Factory", _LLAMA_FACTORY),
        ("axolotl", _AXOLOTL),
        ("earlier releases of transformers", _TRANSFORMERS),
        ("TRL", _TRL),
    )
    for name, here in table.items()
}
"""Name -> (whose, what to write here)."""

LOSS_NAMES: Mapping[str, str] = {
    "sigmoid": "dpo",
    "robust": "robust_dpo",
    "sigmoid_norm": "ln_dpo",
    "sft": "nll",
    "kto_pair": "kto",
    "aot_pair": "aot_unpaired",
}
"""TRL's `loss_type` values, earlier ones included, whose loss has another name here."""

NOT_HERE: Mapping[str, str] = {
    "apo_zero_unpaired": "on pairs it is 'apo_zero'; on single responses 'kto' is the nearest, with a reference point",
}
"""TRL's `loss_type` values that no loss here stands for, and what comes nearest."""


def advice(path: KeyPath) -> str | None:
    """What to write instead of the unknown setting at `path`: another trainer's, or one from another section."""
    name = str(path[-1])
    above = f"{'.'.join(map(str, path[:-1]))}: " if path[:-1] else ""
    homes = [home for home in _homes(name) if home.rpartition(".")[0] != ".".join(map(str, path[:-1]))]
    if path[0] == "loss":
        homes = [home for home in homes if not home.startswith("loss.")]
    if homes:
        return f"{above}'{name}' stands in the wrong place: write {' or '.join(homes)}."
    if name in FOREIGN:
        owner, here = FOREIGN[name]
        return f"{above}'{name}' is a name of {owner}. Here: {here}."
    return None


def _homes(name: str) -> list[str]:
    """Dotted places where a setting of that name exists."""
    found = [f"training.{name}"] if name in NAMES else []
    for section, model in SECTIONS.items():
        found += [f"{section}.{place}" for place in _places(model, name)]
    if any(name in loss_spec(loss).params.model_fields for loss in loss_names()):
        found.append(f"loss.{name}")
    return found


def _places(model: type[Settings], name: str) -> Iterable[str]:
    """Dotted places of a name in a section and in the optional sections inside it."""
    if name in model.model_fields:
        yield name
    for field, info in model.model_fields.items():
        parts = get_args(info.annotation)
        for part in parts if type(None) in parts else ():
            if isinstance(part, type) and issubclass(part, Settings):
                yield from (f"{field}.{place}" for place in _places(part, name))


def unknown_loss(name: str) -> str | None:
    """A sentence for a loss name that is TRL's or nearly so; nothing for one that is known here or nowhere."""
    if known_loss(name):
        return None
    theirs = next(iter(get_close_matches(name.lower(), [*LOSS_NAMES, *NOT_HERE], n=1, cutoff=0.8)), None)
    if theirs is None:
        return None
    start = f"unknown loss '{name}'." if name != theirs else ""
    if theirs in NOT_HERE:
        return f"{start} TRL's '{theirs}' is not available: {NOT_HERE[theirs]}.".strip()
    return f"{start} TRL's '{theirs}' is '{LOSS_NAMES[theirs]}' here.".strip()


def known_loss(name: str) -> bool:
    """Whether a loss of that name or alias is registered."""
    try:
        loss_spec(name)
    except ConfigError:
        return False
    return True
