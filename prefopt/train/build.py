"""From a recipe to a finished run: the only place that knows all the parts."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer import TRAINING_ARGS_NAME

from prefopt.config import Recipe
from prefopt.data.load import Source
from prefopt.data.options import column_needs
from prefopt.data.rows import REFERENCE_SUMS
from prefopt.data.tokenize import DataOptions, Prepared, prepare_rows
from prefopt.errors import ConfigError, InputError, Problem, RunError
from prefopt.losses import Objective
from prefopt.runs import (
    DATA_REPORT,
    MARKER,
    RECIPE,
    RECORD,
    RunDirectory,
    check_output,
    source_commit,
    versions,
    write_json,
    write_text,
)
from prefopt.scores import Need
from prefopt.scoring.reference import AdapterOffReference, ModelReference
from prefopt.train.alarms import Alarms
from prefopt.train.card import model_card
from prefopt.train.evaluate import AnswerEvaluation
from prefopt.train.model import fingerprint, load_policy, load_tokenizer
from prefopt.train.plan import effective_plan, settled_plan
from prefopt.train.preflight import check_first_rows, check_positions, check_vocabulary, check_words, warn_of_one_label
from prefopt.train.probing import probing
from prefopt.train.progress import ProgressLines
from prefopt.train.references import choose_reference, default_scorer
from prefopt.train.refusals import check_window, refuse_data_parallel
from prefopt.train.sharding import check_sharded_recipe, keep_whole
from prefopt.train.state import CheckpointState, check_probe, check_resume, newest_checkpoint
from prefopt.train.sync import MoveReference
from prefopt.train.trainer import PreferenceTrainer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult:
    """What a run came to. `before` and `after` are evaluations, empty when none was run; `training` is the last
    training line.
    """

    run: Path
    plan: dict[str, Any]
    training: dict[str, float] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    next_steps: tuple[str, ...] = ()
    dry_run: bool = False


def train(
    recipe: Recipe,
    *,
    resume: bool = False,
    resume_from: Path | str | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    on_plan: Callable[[dict[str, Any]], None] | None = None,
) -> TrainResult:
    """Run a recipe: load, tokenize, check, train, evaluate, save. `on_plan` receives the effective plan before the
    first step.

    `resume` continues from the newest whole checkpoint of the output folder, and starts from the beginning when there
    is none; `resume_from` names the checkpoint. `dry_run` stops before the first step and writes nothing.
    Raises: `ConfigError`, `DataError` for what the recipe or its data get wrong; `RunError` for what goes wrong while
    running.
    """
    resume = resume or resume_from is not None
    parts = assemble(recipe, resume=resume, overwrite=overwrite, dry_run=dry_run)
    trainer = parts.trainer
    checkpoint, step = _checkpoint(parts, resume_from) if resume else (None, -1)
    fresh = recipe.reference.source == "initial" and checkpoint is None
    if trainer.sharding is None:
        plan = parts.plan | check_first_rows(trainer, same_reference=fresh) | settled_plan(trainer)
    else:  # the model is whole nowhere, and runs only once it is wrapped
        plan = parts.plan
        trainer.add_callback(_FirstRows(trainer, same_reference=fresh))
    if on_plan is not None:
        on_plan(plan)
    if dry_run:
        return TrainResult(parts.run.path, plan, dry_run=True)
    with trainer.args.main_process_first(desc="opening the run directory"):
        if trainer.is_world_process_zero():  # only now, when nothing can be refused any more
            RunDirectory.open(parts.run.path, resume=resume, overwrite=overwrite)
            parts.run.forget_after(step)
            _write_records(parts, plan)
    if trainer.row_evaluation is not None and trainer.eval_dataset and checkpoint is None:
        trainer.args.eval_on_start = True  # answers before, to compare those after with
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    if parts.alarms.stopped:
        kept = parts.run.path / f"checkpoint-{trainer.state.global_step}"
        raise RunError(f"{parts.alarms.stopped} The run has ended there and is kept in {kept}; --resume continues it.")
    if trainer.state.global_step == 0:
        raise RunError("training ended without a single step; nothing was learned and nothing is saved.")
    last: dict[str, float] = next((line for line in reversed(trainer.state.log_history) if "loss" in line), {})
    after = dict(trainer.evaluate()) if trainer.eval_dataset else {}
    before = _baseline(parts.run)
    _save(parts, plan, after or last)
    return TrainResult(parts.run.path, plan, training=last, before=before, after=after, next_steps=_next_steps(parts))


def _next_steps(parts: Parts) -> tuple[str, ...]:
    source = parts.recipe.source_path
    path = "RECIPE" if source is None else source
    return (
        f"again with another seed:     prefopt train {path} training.seed=1 training.output_dir=runs/seed-1",
        "other losses:                prefopt losses",
        f"look at the rows as tokens:  prefopt preview {path}",
    )


@dataclass(frozen=True)
class Parts:
    """A run that is ready to start."""

    trainer: PreferenceTrainer
    run: RunDirectory
    recipe: Recipe
    objective: Objective
    prepared: dict[str, Prepared]
    plan: dict[str, Any]
    state: CheckpointState
    alarms: Alarms
    base: str | None = None
    """Fingerprint of the weights that an adapter is trained on."""


def assemble(recipe: Recipe, *, resume: bool = False, overwrite: bool = False, dry_run: bool = False) -> Parts:
    """Everything a recipe names, loaded and checked. Writes nothing."""
    args = training_arguments(recipe)
    refuse_data_parallel(args)
    check_sharded_recipe(args, recipe)
    keep_whole(args)
    output = Path(args.output_dir)
    with args.main_process_first(desc="checking the output folder"):
        if args.process_index == 0:
            check_output(output, resume=resume, overwrite=overwrite)
    if dry_run:
        args.output_dir = tempfile.mkdtemp()  # Trainer makes the folder it is given
    objective = recipe.objective()
    check_window(objective, args, recipe.scoring.coupling, recipe.scoring.tokens_per_batch)
    set_seed(args.seed)
    tokenizer = load_tokenizer(
        recipe.model.name_or_path, revision=recipe.model.revision, trust_remote_code=recipe.model.trust_remote_code
    )
    with args.main_process_first(desc="tokenizing"):
        prepared = prepare(recipe, tokenizer, objective, args)
    warn_of_one_label(prepared["train"].rows, objective)
    check_words(prepared["train"].rows)
    model = load_policy(recipe.model)
    check_positions(model, [p.rows for p in prepared.values()])
    scorer = default_scorer(args, recipe.scoring.backend, recipe.scoring.layout)
    reference = choose_reference(recipe, model, objective, scorer, tokenizer, [p.rows for p in prepared.values()])
    check_vocabulary(model, tokenizer, reference=reference.model if isinstance(reference, ModelReference) else None)
    run = RunDirectory(output)
    place = reference.describe()
    base = _base(model, place) if recipe.model.adapter is not None else None
    identity = {
        "objective": objective.describe(),
        "reference": {name: place[name] for name in ("kind", "fingerprint") if name in place},  # not where it lay
        "data": prepared["train"].audit.fingerprint,
        "schedule": schedule(args, recipe.scoring.tokens_per_batch) | window(objective, args, recipe.scoring.coupling),
    }
    sync, moving = recipe.reference.sync, []
    if sync is not None and isinstance(reference, ModelReference):
        identity["sync"] = sync.model_dump()
        moving = [MoveReference(reference, every=sync.every, mix=sync.mix)]
    state = CheckpointState(identity)
    generation = recipe.evaluation.generate
    probes = probing(recipe.diagnostics, prepared["train"].rows, tokenizer, scorer, args, run)
    alarms = Alarms(recipe.safety.alarms, run=run)
    trainer = PreferenceTrainer(
        model,
        args,
        objective=objective,
        train_dataset=prepared["train"].rows,
        eval_dataset={name: p.rows for name, p in prepared.items() if name != "train"} or None,
        processing_class=tokenizer,
        reference=reference,
        scorer=scorer,
        nonfinite=recipe.safety.nonfinite,
        coupling=recipe.scoring.coupling,
        tokens_per_batch=recipe.scoring.tokens_per_batch,
        run=None if dry_run else run,
        row_evaluation=None if generation is None else AnswerEvaluation(**generation.model_dump()),
        # what is saved comes before the state, which makes a checkpoint whole
        callbacks=[ProgressLines(), *moving, state, *probes, alarms],
    )
    state.trainer = trainer
    for probe in probes:
        probe.log = trainer.log
    quiet(trainer)
    if dry_run:
        shutil.rmtree(args.output_dir, ignore_errors=True)
    plan = effective_plan(recipe, trainer, prepared, objective)
    return Parts(trainer, run, recipe, objective, prepared, plan, state, alarms, base)


def _base(model: Any, reference: Mapping[str, Any]) -> str:
    """The fingerprint of the weights below an adapter, which may be the reference's."""
    if reference["kind"] == AdapterOffReference.KIND and "fingerprint" in reference:
        return str(reference["fingerprint"])
    return fingerprint(model, adapters=False)


_SCHEDULE = (
    "seed",
    "data_seed",
    "train_sampling_strategy",
    "dataloader_drop_last",
    "optim",
    "learning_rate",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
    "lr_scheduler_type",
    "lr_scheduler_kwargs",
    "warmup_steps",
    "bf16",
    "fp16",
)


def schedule(args: TrainingArguments, tokens_per_batch: int | None = None) -> dict[str, Any]:
    """The training arguments that decide which rows and which rate a step has. Their change ends a trajectory; more
    steps or epochs, or another split of the same batch over ranks and accumulation, do not."""
    batches = args.gradient_accumulation_steps * args.world_size
    step: dict[str, Any] = {"rows_per_step": args.per_device_train_batch_size * batches}
    if tokens_per_batch is not None:
        step = {"tokens_per_batch": tokens_per_batch, "batches_per_step": batches}
    return {**{name: str(getattr(args, name)) for name in _SCHEDULE}, **step}


def window(objective: Objective, args: TrainingArguments, coupling: str) -> dict[str, Any]:
    """How the steps of an objective that compares prompts are cut, which for no other decides a trajectory."""
    if not objective.window:
        return {}
    micro = args.per_device_train_batch_size * args.world_size
    return {"coupling": coupling, "window": micro * (args.gradient_accumulation_steps if coupling == "step" else 1)}


def training_arguments(recipe: Recipe) -> TrainingArguments:
    """The recipe's `training:` as `TrainingArguments`, with what the trainer needs fixed.

    Raises: `ConfigError` in the words of the library when a combination is refused.
    """
    options: dict[str, Any] = {
        "logging_steps": 10,
        "disable_tqdm": False,
        "report_to": "none",
        "ddp_find_unused_parameters": False,
        **recipe.training,
    }
    for word in ("activation", "gradient"):  # two names of one thing, the second until transformers 6
        if options.get(f"{word}_checkpointing"):
            options.setdefault(f"{word}_checkpointing_kwargs", {"use_reentrant": False})
    try:
        return TrainingArguments(**options, remove_unused_columns=False, average_tokens_across_devices=False)
    except (ValueError, TypeError, ImportError) as error:
        raise ConfigError(Problem(f"training: {error}", ("training",))) from error


def prepare(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase, objective: Objective, args: TrainingArguments
) -> dict[str, Prepared]:
    """Tokenized rows of `train` and of each named evaluation set.

    Raises: `DataError` over all sets at once.
    """
    options = data_options(recipe, objective)
    seed = args.data_seed if args.data_seed is not None else args.seed
    sets: dict[str, list[Source]] = {"train": [source(s) for s in recipe.data.train]}
    sets |= {name: [source(s)] for name, s in recipe.data.eval.items()}
    found, problems = {}, []
    for name, sources in sets.items():
        logger.info("tokenizing %s: %s", name, ", ".join(s.path for s in sources))
        try:
            found[name] = prepare_rows(sources, tokenizer, options, seed=seed, name=name)
        except InputError as error:
            problems.append(error)
    if problems:
        raise type(problems[0])(*(problem for error in problems for problem in error.problems))
    return found


def source(section: Any) -> Source:
    """The data layer's source for a recipe's."""
    return Source(**section.model_dump())


def data_options(recipe: Recipe, objective: Objective) -> DataOptions:
    """The data layer's options for a recipe's `data:` section and what its objective reads."""
    names = DataOptions.__dataclass_fields__.keys() - {"responses", "needs"}
    given = recipe.data.model_dump(include=set(names))
    return DataOptions(**given, responses=objective.responses, needs=_column_needs(recipe, objective))


def _column_needs(recipe: Recipe, objective: Objective) -> tuple[str, ...]:
    sums = recipe.reference.cache == "columns" and Need.REFERENCE in objective.needs
    return (*column_needs(objective.needs), *([REFERENCE_SUMS] if sums else []))


def quiet(trainer: PreferenceTrainer) -> None:
    """Take out Trainer's own progress callbacks; `ProgressLines` speaks."""
    from transformers import PrinterCallback, ProgressCallback

    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)


def _checkpoint(parts: Parts, named: Path | str | None) -> tuple[Path | None, int]:
    """The checkpoint to continue from and its step; None and -1 when there is none. Nothing is written.

    Raises: `ConfigError` when it belongs to another run or cannot be continued.
    """
    found = Path(named) if named is not None else newest_checkpoint(parts.run)
    if found is None:
        logger.info("no whole checkpoint in %s: starting from the beginning", parts.run.path)
        return None, -1
    if parts.trainer.args.save_only_model:
        raise ConfigError("training.save_only_model: its checkpoints hold no optimizer state, so a run cannot resume.")
    saved = check_resume(found, parts.state.identity)
    if saved["of"] != parts.plan["steps"] and "constant" not in str(parts.trainer.args.lr_scheduler_type):
        logger.warning(
            "%s was on its way to %s steps, now %s: from here on the learning rate follows another curve.",
            found.name,
            saved["of"],
            parts.plan["steps"],
        )
    for callback in parts.trainer.callback_handler.callbacks:
        if isinstance(callback, MoveReference):
            callback.restore(found)
    parts.trainer.restore(saved["pending"])
    parts.trainer.loss_state = parts.objective.load_state(saved["loss_state"]) or None
    parts.trainer.add_callback(_ProbeOnce(parts.trainer, saved))
    return found, int(saved["step"])


class _FirstRows(TrainerCallback):
    """Checks the first rows, and says how they are scored, as soon as the model is wrapped."""

    def __init__(self, trainer: PreferenceTrainer, *, same_reference: bool) -> None:
        self.trainer, self.same_reference = trainer, same_reference

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        found = check_first_rows(self.trainer, same_reference=self.same_reference) | settled_plan(self.trainer)
        for name, value in found.items():
            logger.info("%s: %s", name, value)


class _ProbeOnce(TrainerCallback):
    """Checks the restored model as soon as the checkpoint is loaded."""

    def __init__(self, trainer: PreferenceTrainer, saved: dict[str, Any]) -> None:
        self.trainer, self.saved = trainer, saved

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        check_probe(self.trainer, self.saved)


def _baseline(run: RunDirectory) -> dict[str, float]:
    """The evaluation at step 0, also of a run that was resumed."""
    found: dict[str, float] = {}
    for line in run.metrics():
        if line.get("step") == 0:
            found |= {name: value for name, value in line.items() if name.startswith("eval_")}
    return found


def _write_records(parts: Parts, plan: Mapping[str, Any]) -> None:
    run, trainer = parts.run, parts.trainer
    found = versions()
    record = {
        MARKER: found.get("prefopt-train", "a checkout"),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": found,
        "commit": source_commit(),
        "device": str(trainer.args.device),
        "processes": trainer.args.world_size,
        "threads": torch.get_num_threads(),
        "model": {"name_or_path": parts.recipe.model.name_or_path, "fingerprint": fingerprint(trainer.model)},
        "reference": trainer.reference.describe(),
        **({} if parts.base is None else {"base": parts.base}),
        "data": {name: p.audit.fingerprint for name, p in parts.prepared.items()},
        "plan": plan,
    }
    write_json(run.path / RECORD, record)  # first: it marks the folder as a run's, to be resumed or overwritten
    write_text(run.path / RECIPE, parts.recipe.resolved())
    write_json(run.path / DATA_REPORT, {name: p.audit.to_json() for name, p in parts.prepared.items()})


def _save(parts: Parts, plan: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
    """The final model on top of the run directory: whole in a folder beside it first, then moved."""
    trainer, run = parts.trainer, parts.run
    partial = run.path / ".final"
    trainer.save_model(str(partial))
    if not trainer.is_world_process_zero():
        return
    (partial / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle, and `recipe.yaml` says the same
    for file in sorted(partial.iterdir()):
        file.chmod(0o644)  # weights are written for the owner alone
        file.replace(run.path / file.name)
    partial.rmdir()
    trainer.state.save_to_json(str(run.path / "trainer_state.json"))
    card = model_card(
        base_model=parts.recipe.model.name_or_path,
        objective=parts.objective,
        reference=trainer.reference.describe(),
        rows=len(trainer.train_dataset),
        plan=plan,
        metrics=metrics,
        adapter=parts.recipe.model.adapter is not None,
    )
    write_text(run.path / "README.md", card)
