"""Rules that span settings: what does not fit together, or has no effect.

A rule names the parts of a recipe it looks at as its parameters; it is asked when all of them could be read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefopt.config.data_rules import DATA_RULES
from prefopt.config.output_rules import OUTPUT_RULES
from prefopt.config.paths import CACHES, short
from prefopt.config.report_rules import REPORT_RULES
from prefopt.config.sections import DataSection, EvaluationSection, ModelSection, ReferenceSection
from prefopt.config.training import unused_arguments, value_of
from prefopt.config.watch_rules import WATCH_RULES
from prefopt.config.written import Written
from prefopt.demo import demo_model_path, is_demo
from prefopt.errors import ConfigError, Problem, did_you_mean
from prefopt.losses import Objective
from prefopt.params import KeyPath
from prefopt.scores import Need


@dataclass(frozen=True)
class Draft:
    """The parts of a recipe that could be read; None for one that could not."""

    written: Written
    model: ModelSection | None = None
    reference: ReferenceSection | None = None
    data: DataSection | None = None
    objective: Objective | None = None
    evaluation: EvaluationSection | None = None
    training: dict[str, Any] | None = None


@dataclass
class Findings:
    """What the rules found. A warning is a problem that does not stop anything."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


def check_draft(draft: Draft) -> Findings:
    """Ask every rule that has what it looks at."""
    return Findings(problems=list(_ask(RULES, draft)), warnings=list(_ask(WARNINGS, draft)))


def _ask(rules: Iterable[Rule], draft: Draft) -> Iterator[Problem]:
    for rule in rules:
        parts = {name: getattr(draft, name) for name in inspect.signature(rule).parameters}
        if all(part is not None for part in parts.values()):
            yield from rule(**parts)


Rule = Callable[..., Iterable[Problem]]


def reference_fits_loss(written: Written, reference: ReferenceSection, objective: Objective) -> Iterator[Problem]:
    needed = Need.REFERENCE in objective.needs
    if needed and reference.source == "none":
        text = (
            f"loss '{objective.name}' compares with a reference, and reference.source is none. Leave the section out to"
        )
        yield Problem(f"{text} compare with the model as it starts.", ("reference", "source"))
    if not needed and reference.source != "none" and written.get("reference"):
        text = f"loss '{objective.name}' reads no reference, so this section has no effect. Leave it out, or write"
        yield Problem(f"reference: {text} `source: none`.", ("reference",))


def reference_is_named(written: Written, reference: ReferenceSection) -> Iterator[Problem]:
    if reference.source == "model" and reference.name_or_path is None:
        yield Problem(
            "reference.source is model, and reference.name_or_path does not say which.", ("reference", "source")
        )
    for name in ("name_or_path", "revision"):
        if reference.source != "model" and written.has("reference", name):
            text = f"reference.{name} is read only with `source: model`; the source is {reference.source}."
            yield Problem(text, ("reference", name))


def model_can_be_found(model: ModelSection) -> Iterator[Problem]:
    yield from _model_folder(model.name_or_path, ("model", "name_or_path"))
    start = model.adapter.start if model.adapter else None
    if start is not None and Path(start).is_absolute() and not (Path(start) / "adapter_config.json").is_file():
        yield Problem(
            f"model.adapter.start: {short(start)} holds no adapter_config.json.", ("model", "adapter", "start")
        )


def cache_can_serve(reference: ReferenceSection) -> Iterator[Problem]:
    path = ("reference", "cache")
    if reference.cache not in ("auto", "off") and reference.sync is not None:
        text = "reference.sync moves the reference, and a cache holds what it said before. Leave out one of the two."
        yield Problem(f"reference.cache: {text}", path)
    place = Path(reference.cache)
    meant = did_you_mean(place.name, CACHES, closeness=0.75)
    taken = next((p for p in (place, *place.parents) if p.is_file()), None)
    if reference.cache not in CACHES and taken is not None:
        yield Problem(f"reference.cache: {short(str(taken))} is a file, and a cache is a folder.", path)
    if reference.cache not in CACHES and meant and not place.exists():
        yield Problem(f"reference.cache: there is no folder {short(reference.cache)}.{meant}", path)


def sync_can_act(reference: ReferenceSection, model: ModelSection) -> Iterator[Problem]:
    if reference.sync is None:
        return
    if reference.source == "none":
        yield Problem("reference.sync has no effect: reference.source is none.", ("reference", "sync"))
    elif reference.source == "model" and model.adapter is not None:
        text = (
            "the adapter that is trained has no counterpart in another model, so it cannot follow. Use source: initial"
        )
        yield Problem(f"reference.sync: {text}, or train full weights.", ("reference", "sync"))


def cache_holds_enough(reference: ReferenceSection, objective: Objective) -> Iterator[Problem]:
    if reference.cache == "columns":
        yield from _sums_suffice(objective)
    elif Need.KL in objective.needs and reference.cache not in CACHES:
        text = f"loss '{objective.name}' compares whole distributions with the reference, and a cache holds only the"
        yield Problem(
            f"reference.cache: {text} log-probabilities of the responses' tokens. Write `cache: off`.",
            ("reference", "cache"),
        )


WITH_SUMS = frozenset({Need.REFERENCE, Need.LENGTHS, Need.EXTERNAL, Need.DEVIATION, Need.LABELS})
"""What losses may need that read of a reference no more than its log-probabilities of whole responses."""


def _sums_suffice(objective: Objective) -> Iterator[Problem]:
    path = ("reference", "cache")
    if Need.REFERENCE not in objective.needs:
        text = f"loss '{objective.name}' reads no reference, so `columns` has no effect. Leave it out."
        yield Problem(f"reference.cache: {text}", path)
    for loss in objective.losses:
        more = sorted(loss.needs - WITH_SUMS)
        if more and Need.REFERENCE in loss.needs:
            text = f"columns hold one sum per response, and loss '{loss.name}' needs more of a reference (it reads"
            advice = "`prefopt reference RECIPE` keeps them per token" if Need.KL not in more else "Write `cache: off`"
            then = f"{advice}, and `cache: auto` finds them." if Need.KL not in more else f"{advice}."
            yield Problem(f"reference.cache: {text} {', '.join(more)}). {then}", path)


def sums_are_of_whole_responses(reference: ReferenceSection, data: DataSection) -> Iterator[Problem]:
    if reference.cache == "columns" and data.truncate in ("response", "prompt_start"):
        text = f"reference.cache is columns, whose sums belong to whole rows, and `{data.truncate}` cuts rows. Write"
        yield Problem(f"data.truncate: {text} `drop` or `error`.", ("data", "truncate"))


def reference_can_be_found(reference: ReferenceSection) -> Iterator[Problem]:
    if reference.name_or_path is not None:
        yield from _model_folder(reference.name_or_path, ("reference", "name_or_path"))


def _model_folder(name: str, path: KeyPath) -> Iterator[Problem]:
    dotted = ".".join(map(str, path))
    if is_demo(name):
        try:
            demo_model_path(name)
        except ConfigError as error:
            yield Problem(f"{dotted}: {error}", path)
    elif Path(name).is_absolute():
        folder = Path(name)
        if not folder.is_dir():
            yield Problem(f"{dotted}: there is no folder {short(folder)}.", path)
        elif (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
            text = "holds an adapter, not a model: name its base, and write model.adapter: {mode: continue, start: ...}"
            yield Problem(f"{dotted}: {short(folder)} {text}.", path)
        elif not (folder / "config.json").is_file():
            yield Problem(f"{dotted}: {short(folder)} holds no config.json.", path)


def adapter_settings_are_used(written: Written, model: ModelSection) -> Iterator[Problem]:
    adapter = model.adapter
    if adapter is None:
        return
    if adapter.mode == "new" and adapter.start is not None:
        text = "model.adapter.start is read with `mode: continue` or `mode: merge`; the mode is new."
        yield Problem(text, ("model", "adapter", "start"))
    if adapter.mode != "new" and adapter.start is None:
        text = f"model.adapter.mode is {adapter.mode}, and model.adapter.start does not say which adapter."
        yield Problem(text, ("model", "adapter", "mode"))
    if adapter.mode == "continue":
        for name in ("kind", "r", "alpha", "dropout", "target_modules", "modules_to_save"):
            if written.has("model", "adapter", name):
                text = f"model.adapter.{name} has no effect with `mode: continue`: the adapter keeps the shape it has."
                yield Problem(text, ("model", "adapter", name))


def quantization_fits(model: ModelSection) -> Iterator[Problem]:
    path = ("model", "quantization")
    if model.quantization is None:
        return
    if model.adapter is None:
        text = "quantized weights cannot be trained. Add model.adapter, or leave quantization out."
        yield Problem(f"model.quantization: {text}", path)
    elif model.adapter.mode == "merge":
        text = "an adapter is not merged into quantized weights, which would round it away. Merge it first with"
        yield Problem(f"model.quantization: {text} `prefopt merge`, and name the merged model.", path)


def precision_fits(written: Written, model: ModelSection, training: dict[str, Any]) -> Iterator[Problem]:
    if training.get("fp16") and training.get("bf16"):
        yield Problem("training.fp16 and training.bf16 exclude each other.", ("training", "fp16"))
    elif training.get("fp16") and model.dtype == "float16" and model.adapter is None:
        text = "training.fp16 scales gradients and needs weights stored in float32; model.dtype is float16."
        yield Problem(text, ("training", "fp16"))


def output_folder(written: Written, training: dict[str, Any]) -> Iterator[Problem]:
    folder = training.get("output_dir")
    if not written.has("training", "output_dir"):
        yield Problem("training.output_dir is required and not given.", ("training",))
    elif folder == "":
        yield Problem("training.output_dir must be given, not empty.", ("training", "output_dir"))
    elif folder and Path(folder).exists() and not Path(folder).is_dir():
        yield Problem(f"training.output_dir: {short(folder)} is a file.", ("training", "output_dir"))


def training_files_exist(training: dict[str, Any]) -> Iterator[Problem]:
    for name in ("deepspeed", "fsdp_config"):
        file = training.get(name)
        if isinstance(file, str) and not Path(file).is_file():
            yield Problem(f"training.{name}: there is no file {short(file)}.", ("training", name))


def training_arguments_are_used(written: Written, training: dict[str, Any]) -> Iterator[Problem]:
    """An override may leave a setting of the recipe without effect, as a recipe may one of its base; not itself."""
    causes = {"eval_delay": "eval_strategy", "save_total_limit": "save_strategy", "num_train_epochs": "max_steps"}
    causes |= {f"{what}_steps": f"{what}_strategy" for what in ("eval", "save", "logging")}
    for name, why in unused_arguments(training).items():
        cause = ("training", causes.get(name, "load_best_model_at_end"))
        if not written.has(*cause) or not written.is_over(cause, ("training", name)):
            yield Problem(f"training.{name} has no effect: {why}.", ("training", name))


def evaluation_has_data(written: Written, data: DataSection, training: dict[str, Any]) -> Iterator[Problem]:
    if data.eval:
        return
    if value_of(training, "eval_strategy") != "no":
        text = f"training.eval_strategy is {training['eval_strategy']}, and data.eval names no set."
        yield Problem(text, ("training", "eval_strategy"))
    if written.has("evaluation", "generate"):
        yield Problem("evaluation.generate needs a set under data.eval, and there is none.", ("evaluation", "generate"))


def best_model_can_be_kept(training: dict[str, Any]) -> Iterator[Problem]:
    evaluate, save = value_of(training, "eval_strategy"), value_of(training, "save_strategy")
    if save == "best" and evaluate == "no":
        yield Problem(
            "training.save_strategy is best, and training.eval_strategy is no.", ("training", "save_strategy")
        )
    if save == "best" and not training.get("metric_for_best_model"):
        text = "training.save_strategy is best, and training.metric_for_best_model does not say by what."
        yield Problem(text, ("training", "save_strategy"))
    if not training.get("load_best_model_at_end"):
        return
    path = ("training", "load_best_model_at_end")
    if evaluate == "no":
        yield Problem("training.load_best_model_at_end needs evaluations, and training.eval_strategy is no.", path)
    elif save not in {evaluate, "best"}:
        text = f"needs equal strategies; training.save_strategy is {save}, training.eval_strategy {evaluate}."
        yield Problem(f"training.load_best_model_at_end {text}", path)
    elif save == evaluate == "steps":
        saves = value_of(training, "save_steps")
        evals = training.get("eval_steps") or value_of(training, "logging_steps")
        if saves >= 1 and evals >= 1 and saves % evals:
            text = (
                f"needs an evaluation wherever it saves: save_steps {saves:g} is no multiple of eval_steps {evals:g}."
            )
            yield Problem(f"training.load_best_model_at_end {text}", path)


def stored_in_half(model: ModelSection) -> Iterator[Problem]:
    if model.dtype != "float32" and model.adapter is None:
        text = (
            f"model.dtype is {model.dtype} and all weights are trained: at the learning rates of preference tuning it"
        )
        yield Problem(f"{text} swallows most updates. Use float32, and training.bf16 for speed.", ("model", "dtype"))


def compiling_is_possible(written: Written, training: dict[str, Any]) -> Iterator[Problem]:
    if value_of(training, "torch_compile") and written.get("scoring", "backend") != "plain":
        text = (
            "a compiled model cannot hand its head to the other backends. Write `scoring: {backend: plain}`, or leave"
        )
        yield Problem(f"training.torch_compile: {text} this out.", ("training", "torch_compile"))


def coupling_acts(written: Written, objective: Objective) -> Iterator[Problem]:
    if written.get("scoring", "coupling") == "step" and not objective.window:
        text = f"scoring.coupling: step has no effect: loss '{objective.name}' treats every prompt alone. Leave it out."
        yield Problem(text, ("scoring", "coupling"))


def batch_is_said_once(written: Written) -> Iterator[Problem]:
    rows, tokens = ("training", "per_device_train_batch_size"), ("scoring", "tokens_per_batch")
    if written.has(*tokens) and written.has(*rows) and not written.is_over(tokens, rows):
        text = "scoring.tokens_per_batch decides how many rows a batch has, so this has no effect. Leave out one of the"
        yield Problem(f"training.per_device_train_batch_size: {text} two.", rows)


def coupled_alone(written: Written, objective: Objective, training: dict[str, Any]) -> Iterator[Problem]:
    compared = [loss.name for loss in objective.losses if loss.window > 1]
    step = written.get("scoring", "coupling") == "step"
    micro = value_of(training, "per_device_train_batch_size")
    window = micro * value_of(training, "gradient_accumulation_steps") if step else micro
    if compared and window == 1:
        text = f"loss '{compared[0]}' compares prompts with one another; with one prompt per device and one device it"
        yield Problem(
            f"{text} has none to compare, and training refuses to start.", ("training", "per_device_train_batch_size")
        )


RULES: tuple[Rule, ...] = (
    model_can_be_found,
    adapter_settings_are_used,
    quantization_fits,
    precision_fits,
    reference_fits_loss,
    reference_is_named,
    reference_can_be_found,
    cache_can_serve,
    cache_holds_enough,
    sums_are_of_whole_responses,
    sync_can_act,
    compiling_is_possible,
    coupling_acts,
    batch_is_said_once,
    *DATA_RULES,
    evaluation_has_data,
    output_folder,
    *OUTPUT_RULES,
    training_files_exist,
    training_arguments_are_used,
    best_model_can_be_kept,
    *REPORT_RULES,
    *WATCH_RULES,
)
WARNINGS: tuple[Rule, ...] = (stored_in_half, coupled_alone)
