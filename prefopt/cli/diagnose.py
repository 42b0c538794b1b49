"""`prefopt diagnose`: which pairs are likely to lower their chosen response, and after training what became of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from prefopt.cli.console import shown_progress, speak
from prefopt.config import load_recipe
from prefopt.errors import ConfigError, RunError, did_you_mean
from prefopt.runs import RECIPE, RECORD

if TYPE_CHECKING:
    from prefopt.config import Recipe
    from prefopt.config.sections import ModelSection
    from prefopt.data import DataOptions, Source
    from prefopt.diagnostics.diagnosis import Settings, Subject
    from prefopt.diagnostics.processes import Processes

logger = logging.getLogger(__name__)


SCORES = ("ln_ches", "ches", "cosine", "last_inner_product", "similarity")
"""What records may be ranked by; `similarity` is minus the normalised edit distance, so near-duplicates go first."""


DTYPES = ("float32", "bfloat16", "float16")
TEMPLATES = ("auto", "always", "never")


@dataclass(frozen=True)
class Asked:
    """The command line: what is diagnosed, and how. `target` is a recipe, a run directory, or None with `model`."""

    target: Path | None
    overrides: Sequence[str] = ()
    model: str | None = None
    start: str | None = None
    data: Sequence[str] = ()
    columns: Sequence[str] = ()
    split: str | None = None
    max_length: int | None = None
    truncate: str | None = None
    template: str | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Plan:
    """What is to be loaded: the model that training starts from, the trained one if any, records and their options."""

    start: ModelSection
    policy: ModelSection | None
    sources: Sequence[Source]
    options: DataOptions
    run: Path | None = None
    bare: bool = False
    """Whether nothing said how rows are read."""


def diagnose(
    asked: Asked,
    out: Path,
    *,
    batch_tokens: int = 4096,
    keep_lowest: float | None = None,
    keep_lowest_by: str | None = None,
    overwrite: bool = False,
    as_json: bool = False,
) -> None:
    """Diagnose a data set or a run and print what was found.

    Raises: `ConfigError`, `DataError` for what cannot be diagnosed.
    """
    _check(asked, keep_lowest, keep_lowest_by)
    keep_lowest_by = keep_lowest_by or SCORES[0]
    recipe = _recipe(asked)  # before torch is imported: a mistake in the recipe answers at once
    speak()
    from prefopt.diagnostics import diagnosis
    from prefopt.diagnostics.processes import processes

    diagnosis.check_folder(out, overwrite=overwrite)
    workers = processes()
    plan = _planned(asked, recipe)
    subject = _loaded(plan, workers)
    settings = diagnosis.Settings(batch_tokens, keep_lowest, keep_lowest_by, _described(plan.options))
    summary = _run(subject, out, settings, workers, overwrite=overwrite)
    if summary is None:
        return
    from prefopt.report import write_report

    write_report([out], out / diagnosis.REPORT)
    if as_json:
        print(json.dumps(summary, ensure_ascii=False))
    else:
        _show(summary, out)


def _check(asked: Asked, keep_lowest: float | None, keep_lowest_by: str | None) -> None:
    """Raises: `ConfigError` for a command line that does not say what to diagnose, or says it twice."""
    if asked.target is None and (asked.model is None or not asked.data):
        raise ConfigError("say what to diagnose: a recipe, a run directory, or --model together with --data.")
    if asked.target is not None and (asked.model is not None or asked.start is not None):
        raise ConfigError(f"{asked.target} names its model itself; --model and --start are for data without a recipe.")
    if asked.target is not None and asked.dtype is not None:
        raise ConfigError(f"{asked.target} has a dtype of its own; model.dtype=... changes it.")
    if asked.dtype is not None and asked.dtype not in DTYPES:
        raise ConfigError(f"--dtype is one of {', '.join(DTYPES)}; got '{asked.dtype}'.")
    if asked.columns and not asked.data:
        raise ConfigError("--columns belongs to --data.")
    if asked.split is not None and not asked.data:
        raise ConfigError("--split belongs to --data.")
    wrong = [text for text in asked.columns if text.count("=") != 1]
    if wrong:
        raise ConfigError(f"--columns: '{wrong[0]}' is not of the form ours=theirs, for instance chosen=preferred.")
    if keep_lowest is not None and not 0 < keep_lowest <= 1:
        raise ConfigError(f"--keep-lowest is a share of the records, above 0 and at most 1; got {keep_lowest:g}.")
    if asked.template is not None and asked.template not in TEMPLATES:
        raise ConfigError(f"--template is one of {', '.join(TEMPLATES)}; got '{asked.template}'.")
    if keep_lowest_by is not None and keep_lowest_by not in SCORES:
        meant = did_you_mean(keep_lowest_by, SCORES)
        raise ConfigError(f"--keep-lowest-by is one of {', '.join(SCORES)}; got '{keep_lowest_by}'.{meant}")
    if keep_lowest_by is not None and keep_lowest is None:
        raise ConfigError("--keep-lowest-by says by what --keep-lowest chooses, and that is not given.")
    if asked.overrides and (asked.target is None or asked.target.is_dir()):
        raise ConfigError(f"'{asked.overrides[0]}' changes a recipe, and there is none to change.")


def _recipe(asked: Asked) -> Recipe | None:
    if asked.target is None:
        return None
    if not asked.target.is_dir():
        return load_recipe(asked.target, list(asked.overrides))
    for name in (RECIPE, RECORD):
        if not (asked.target / name).is_file():
            raise ConfigError(f"{asked.target} is no run directory of prefopt: it has no {name}.")
    return load_recipe(asked.target / RECIPE, [])


def _planned(asked: Asked, recipe: Recipe | None) -> Plan:
    from prefopt.config.sections import ModelSection
    from prefopt.data import DataOptions, Source
    from prefopt.train.build import data_options, source

    cut: dict[str, Any] = {} if asked.max_length is None else {"max_length": asked.max_length}
    cut |= {} if asked.truncate is None else {"truncate": asked.truncate}
    cut |= {} if asked.template is None else {"template": asked.template}
    columns = dict(text.split("=") for text in asked.columns)
    sources = [Source(path, split=asked.split, columns=columns) for path in asked.data]
    if recipe is None:
        section: dict[str, Any] = {} if asked.dtype is None else {"dtype": asked.dtype}
        models = [ModelSection(name_or_path=name, **section) for name in (asked.model, asked.start) if name is not None]
        first, *other = reversed(models)  # the start, if one is named
        known = _as_trained(models)
        options = replace(known or DataOptions(), **cut)
        bare = known is None and asked.template is None
        return Plan(first, other[0] if other else None, sources, options, bare=bare)
    options = replace(data_options(recipe, recipe.objective()), **cut)
    run = asked.target if asked.target is not None and asked.target.is_dir() else None
    return Plan(
        start=recipe.model,
        policy=recipe.model if run is not None else None,
        sources=sources or [source(section) for section in recipe.data.train],
        options=options,
        run=run,
    )


def _as_trained(models: Sequence[ModelSection]) -> DataOptions | None:
    """How the run among these models read its rows, so that a diagnosis reads them alike; None where there is none."""
    from prefopt.data import DataOptions

    for folder in (Path(model.name_or_path) for model in models):
        if (folder / RECIPE).is_file() and (folder / RECORD).is_file():
            data = load_recipe(folder / RECIPE, []).data
            logger.info("rows are read as the run %s read its own: template, lengths, end tokens.", folder)
            same = {"max_length", "truncate", "eos", "template", "chat_template"}
            return DataOptions(**data.model_dump(include=same))
    return None


def _whole(section: ModelSection) -> ModelSection:
    """Raises: `ConfigError` for a folder that holds an adapter only."""
    folder = Path(section.name_or_path)
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise ConfigError(
            f"{folder} holds an adapter, not a model. `prefopt diagnose {folder} --data ...` compares a run of prefopt "
            "with its start on any data; `prefopt merge` makes a whole model of an adapter."
        )
    return section


def _loaded(plan: Plan, workers: Processes) -> Subject:
    import torch

    from prefopt.diagnostics.diagnosis import Subject
    from prefopt.diagnostics.records import read_pairs
    from prefopt.train.model import fingerprint, load_policy, load_tokenizer
    from prefopt.train.preflight import check_reference_tokenizer, check_vocabulary

    section = _whole(plan.start)
    if plan.policy is not None and plan.run is None:
        _whole(plan.policy)
    tokenizer = load_tokenizer(
        section.name_or_path, revision=section.revision, trust_remote_code=section.trust_remote_code
    )
    with workers.first_then_others():
        pairs = read_pairs(plan.sources, tokenizer, plan.options)
    if plan.bare and plan.options.template == "auto" and getattr(tokenizer, "chat_template", None):
        logger.warning(
            "the model has a chat template, and rows of text are read without it, rows of messages with it. Where "
            "training wraps text (data.template: always), say --template always; scores and movement depend on it."
        )
    # a new adapter is drawn: the same in every process, and in a diagnosis that goes on, so that models are recognised
    with torch.random.fork_rng():
        torch.manual_seed(0)
        start = load_policy(section).to(workers.device)
    policy = None
    if plan.run is not None:
        policy = _trained(plan.run, section).to(workers.device)
    elif plan.policy is not None:
        check_reference_tokenizer(load_tokenizer(plan.policy.name_or_path), tokenizer)
        policy = load_policy(plan.policy).to(workers.device)
    check_vocabulary(start, tokenizer, reference=policy)

    def identity(model: Any, name: str, dtype: str) -> dict[str, Any]:
        return {"name_or_path": name, "fingerprint": fingerprint(model), "dtype": dtype}

    found = {"start": identity(start, section.name_or_path, section.dtype)}
    if policy is not None:
        name = str(plan.run) if plan.run is not None else (plan.policy or section).name_or_path
        found["policy"] = identity(policy, name, section.dtype)
        if found["policy"]["fingerprint"] == found["start"]["fingerprint"]:
            logger.warning("%s and %s hold the same weights: nothing can have moved.", name, section.name_or_path)
    return Subject(start, tokenizer, pairs, found, policy)


def _trained(run: Path, section: ModelSection) -> Any:
    """The model that a run came to: its weights, or the adapter it trained on the recipe's model."""
    from prefopt.train.model import load_model, load_policy

    if not (run / "adapter_config.json").is_file():
        if not (run / "config.json").is_file():
            raise RunError(f"{run} holds no model yet: the run has not come to its end.")
        return load_model(str(run), dtype=section.dtype, attn_implementation=section.attn_implementation)
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    model = load_policy(section)  # with the base that the adapter stood on, merged start included
    set_peft_model_state_dict(model, load_file(run / "adapter_model.safetensors"))
    return model


def _described(options: DataOptions) -> dict[str, Any]:
    return json.loads(options.key())  # type: ignore[no-any-return]


def _run(
    subject: Subject, out: Path, settings: Settings, workers: Processes, *, overwrite: bool
) -> dict[str, Any] | None:
    from prefopt.diagnostics.diagnosis import diagnose as measure

    with shown_progress("rows", first=workers.first) as progress:
        return measure(subject, out, settings, processes=workers, overwrite=overwrite, progress=progress)


def _show(summary: dict[str, Any], out: Path) -> None:
    console = Console()
    lost = sum(summary["data"]["lost"].values())
    left = f", {lost:,} records left out" if lost else ""
    console.print(f"{summary['pairs']:,} pairs of {summary['rows']:,} rows{left}")
    console.print(_scores(summary))
    bias = summary["spearman_with_length_gap"]["ches"]
    if bias is not None:
        console.print(f"rank correlation of CHES with how much longer the rejected response is: {-bias:+.2f}")
    if "movement" in summary:
        _show_movement(console, summary["movement"])
    for flag, count in summary["flags"].items():
        console.print(f"{flag}: {count:,} pairs")
    if "filter" in summary:
        kept = summary["filter"]
        console.print(f"kept {kept['kept']:,} of {kept['kept'] + kept['removed']:,} records by {kept['by']}")
    console.print(f"\nwritten to {escape(str(out))}", soft_wrap=True)


def _scores(summary: dict[str, Any]) -> Table:
    table = Table(show_edge=False)
    for column in ("", "mean", "5 %", "median", "95 %"):
        table.add_column(column, justify="left" if not column else "right")
    for name in ("ln_ches", "ches", "edit_distance", "length_gap"):
        found = summary["scores"][name]
        if found["mean"] is not None:
            values = [found["mean"], *(found["quantiles"][q] for q in ("5", "50", "95"))]
            table.add_row(name, *(f"{value:.4g}" for value in values))
    return table


def _show_movement(console: Console, movement: dict[str, Any]) -> None:
    table = Table(show_edge=False)
    for column in ("movement", "nats per response", "nats per token", "mean of nats per token"):
        table.add_column(column, justify="left" if column == "movement" else "right")
    for side in ("chosen", "rejected"):
        values = movement[side]
        table.add_row(side, *(f"{values[key]:+.4g}" for key in ("per_response", "per_token", "mean_per_token")))
    console.print(table)
    console.print(
        f"chosen less likely than at the start: {movement['chosen_dropped']:.1%} of pairs, "
        f"both responses: {movement['both_dropped']:.1%}"
    )
    branch = movement["branch"]
    if branch["pairs"]:
        masses = ", ".join(
            f"{n} {branch[n]['start']:.3f} to {branch[n]['now']:.3f}" for n in ("chosen", "rejected", "other")
        )
        console.print(f"mean probability where the responses part: {masses}")
