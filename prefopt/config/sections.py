"""The sections of a recipe, each setting declared once: default, range, meaning with its unit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, StringConstraints, model_validator

from prefopt.params import Settings, shown

Text = Annotated[str, StringConstraints(min_length=1)]


class Section(Settings):
    """A part of a recipe. null where it is no value of its own means the default: a recipe can undo its base."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, options: Any) -> Any:
        if not isinstance(options, Mapping):
            return options
        fields = cls.model_fields
        nullable = {name for name, field in fields.items() if type(None) in get_args(field.annotation)}
        return {k: v for k, v in options.items() if v is not None or k in nullable or k not in fields}


def _source(value: Any) -> Any:
    """A path stands for a source."""
    return {"path": value} if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    """A single source stands for a list of one."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _set_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ValueError("may hold only letters, digits, - and _: the metrics of a set are named after it.")
    return name


def _names(value: Any) -> str | list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"must be all-linear, a pattern, or a list of layer names; got {shown(value)}.")
    return value if isinstance(value, str) else list(names)


class AdapterSection(Section):
    """Low-rank adapters instead of full weights."""

    mode: Literal["new", "continue", "merge"] = Field(
        "new",
        description="new: a fresh adapter; continue: train the one in `start`; merge: merge `start`, then a fresh one",
    )
    kind: Literal["lora", "dora", "rslora"] = Field("lora", description="the parametrisation")
    r: int = Field(16, ge=1, description="rank, dimensionless")
    alpha: float = Field(32.0, gt=0, description="scale of the update, divided by the rank (rslora: by its root)")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout in front of the adapter, dimensionless")
    target_modules: Annotated[str | list[str], PlainValidator(_names, json_schema_input_type=str | list[str])] = Field(
        "all-linear", description="names of the layers that get an adapter, a pattern, or all-linear"
    )
    modules_to_save: list[Text] | None = Field(None, description="layers trained in full and saved beside the adapter")
    start: Text | None = Field(None, description="hub id or folder of a trained adapter; part of the initial reference")


class ModelSection(Section):
    """The model that is trained."""

    name_or_path: Text = Field(description="hub id, local folder, or demo:NAME for a model that ships with the package")
    revision: Text | None = Field(None, description="branch, tag or commit on the hub")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32", description="how weights are stored; compute in bfloat16 is training.bf16"
    )
    attn_implementation: Text = Field("sdpa", description="attention kernel: sdpa, eager, flash_attention_2, ...")
    trust_remote_code: bool = Field(False, description="run code that comes with the model")
    quantization: Literal["4bit", "8bit"] | None = Field(None, description="quantized frozen weights under adapters")
    adapter: AdapterSection | None = Field(None, description="train an adapter; null trains all weights")


class SyncSection(Section):
    """A reference that follows the policy."""

    every: int = Field(512, ge=1, description="optimizer steps between two moves, steps")
    mix: float = Field(0.6, gt=0, le=1, description="share of the policy in the new reference, dimensionless")


class ReferenceSection(Section):
    """What the policy is compared with."""

    source: Literal["initial", "none", "model"] = Field(
        "initial", description="initial: the model as it starts, a starting adapter included; model: another one"
    )
    name_or_path: Text | None = Field(None, description="hub id or folder of the reference, with source: model")
    revision: Text | None = Field(None, description="branch, tag or commit on the hub, with source: model")
    cache: Text = Field("auto", description="auto, off, columns, or the path of a cache of reference log-probabilities")
    sync: SyncSection | None = Field(None, description="move the reference during training")


class SourceSection(Section):
    """Where records come from."""

    path: Text = Field(description="JSONL, JSON, Parquet or CSV file, a saved data set, or a hub id")
    split: Text | None = Field(None, description="split of a hub data set")
    name: Text | None = Field(None, description="configuration of a hub data set")
    revision: Text | None = Field(None, description="branch, tag or commit of a hub data set")
    columns: dict[Text, Text] = Field(default_factory=dict, description="our column name: the file's column name")
    weight: float = Field(
        1.0, gt=0, description="how often a row is seen per epoch: 2 repeats each, 0.5 draws half, dimensionless"
    )


Source = Annotated[SourceSection, BeforeValidator(_source)]
Sources = Annotated[tuple[Source, ...], BeforeValidator(_listed), Field(min_length=1)]
SetName = Annotated[str, AfterValidator(_set_name)]


class DataSection(Section):
    """Records, and how they become tokens."""

    train: Sources = Field(description="one source or a list of them")
    eval: dict[SetName, Source] = Field(default_factory=dict, description="named sets")
    max_length: int | None = Field(1024, ge=2, description="prompt and response together; null: no limit, tokens")
    truncate: Literal["drop", "response", "prompt_start", "error"] = Field(
        "drop", description="what happens to a row that is longer: left out, cut, or an error"
    )
    eos: Literal["auto", "append", "never"] = Field(
        "auto", description="end token: auto adds one where none stands yet"
    )
    eos_on_cut: bool = Field(False, description="end token also on a response that was cut")
    split: Literal["joint", "separate"] = Field("joint", description="prompt and response tokenized together or apart")
    train_on: Literal["last", "all_assistant"] = Field("last", description="which turns of a response are scored")
    negatives: Literal["keep", "expand"] = Field("keep", description="several rejected: kept, or expanded to pairs")
    allow_empty: bool = Field(False, description="keep rows with an empty response")
    max_lost: float = Field(0.05, ge=0, le=1, description="stop when more than this share of rows cannot be used")
    template: Literal["auto", "always", "never"] = Field(
        "auto", description="chat template: auto uses it for rows of messages and leaves text rows as they are"
    )
    chat_template: Text | None = Field(None, description="a template instead of the tokenizer's: a path, or its text")
    num_proc: int | None = Field(
        None, ge=1, description="processes that tokenize; null: one per 10,000 rows, at most the cores"
    )


class ScoringSection(Section):
    """How log-probabilities are computed. None of it changes their values."""

    layout: Literal["auto", "shared_prefix", "separate"] = Field(
        "auto", description="one row per prompt or per response"
    )
    backend: Literal["auto", "chunked", "plain", "trl"] = Field(
        "auto", description="auto and chunked: never the full logits; plain: with them; trl: TRL's kernel on CUDA"
    )
    tokens_per_batch: int | None = Field(None, ge=1, description="batches by size instead of number, tokens per device")
    coupling: Literal["micro", "step"] = Field("micro", description="the window that batch-coupled losses see")


class AlarmSection(Section):
    """Something to be told about, or to stop for, while a run goes on."""

    name: Literal["chosen_below_start", "squeezing", "loss_spike", "runaway_margins"] = Field(
        description="chosen_below_start: many probe pairs' chosen responses have fallen; squeezing: both responses of "
        "the probes fall while the likeliest tokens gain; loss_spike: the loss jumps; runaway_margins: reward margins "
        "grow without bound"
    )
    action: Literal["warn", "stop"] = Field(
        "warn", description="warn: a message; stop: a checkpoint, and the end of the run with exit code 1"
    )
    above: float | None = Field(
        None,
        gt=0,
        description="threshold. chosen_below_start: share of pairs [0.8]; squeezing: gain, nats per token [0.02]; "
        "loss_spike: distance from the median of the last logged losses in typical distances [10]; runaway_margins: "
        "mean margin of the loss's own rewards [20]",
    )

    @model_validator(mode="after")
    def _share(self) -> AlarmSection:
        if self.name == "chosen_below_start" and (self.above or 0) >= 1:
            raise ValueError(f"above is a share of pairs here, below 1; got {self.above:g}.")
        return self


def _alarm(value: Any) -> Any:
    """A name stands for an alarm."""
    return {"name": value} if isinstance(value, str) else value


class SafetySection(Section):
    """What stops a run."""

    nonfinite: Literal["stop", "skip"] = Field(
        "stop", description="a NaN or infinity stops, or drops its row and counts it"
    )
    alarms: tuple[Annotated[AlarmSection, BeforeValidator(_alarm)], ...] = Field(
        (), description="conditions that stop or warn, each a name or a mapping"
    )


class GenerateSection(Section):
    """Answers generated during evaluation and compared with the rows' answers."""

    max_new_tokens: int = Field(128, ge=1, description="longest answer, tokens")
    samples: int = Field(1, ge=1, description="answers per prompt, dimensionless")
    temperature: float = Field(0.0, ge=0, description="0 is greedy, dimensionless")


class EvaluationSection(Section):
    """What is measured beside the loss."""

    generate: GenerateSection | None = Field(None, description="generate answers for rows that carry an answer")


class DiagnosticsSection(Section):
    """Measures on a fixed set of probe rows during training."""

    every: int = Field(50, ge=1, description="optimizer steps between two probes, steps")
    probes: int = Field(64, ge=0, description="rows in the probe set, none at 0, rows")


SECTIONS: Mapping[str, type[Section]] = {
    "model": ModelSection,
    "reference": ReferenceSection,
    "data": DataSection,
    "scoring": ScoringSection,
    "safety": SafetySection,
    "evaluation": EvaluationSection,
    "diagnostics": DiagnosticsSection,
}
"""The sections that are models. The names in `loss` and `training` come from the registry and from transformers."""
