"""A recipe in memory: frozen sections, the objective they bind, and the text that repeats the run."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr
from ruamel.yaml import YAML

from prefopt.config.foreign import advice, unknown_loss
from prefopt.config.sections import (
    AdapterSection,
    DataSection,
    DiagnosticsSection,
    EvaluationSection,
    GenerateSection,
    ModelSection,
    ReferenceSection,
    SafetySection,
    ScoringSection,
    SourceSection,
    SyncSection,
)
from prefopt.config.training import unused_arguments
from prefopt.errors import ConfigError, Problem
from prefopt.losses import Loss, Objective, get_loss, loss_spec
from prefopt.params import Settings, shown
from prefopt.scores import Need

__all__ = [
    "AdapterSection",
    "DataSection",
    "DiagnosticsSection",
    "EvaluationSection",
    "GenerateSection",
    "ModelSection",
    "Recipe",
    "ReferenceSection",
    "SafetySection",
    "ScoringSection",
    "SourceSection",
    "SyncSection",
    "bind",
]


class Recipe(Settings):
    """Everything that decides a run. Made by `load_recipe`, which has checked it; paths are absolute."""

    model: ModelSection
    reference: ReferenceSection = ReferenceSection()
    data: DataSection
    loss: tuple[dict[str, Any], ...]
    """Name, weight and hyperparameters of each loss."""
    scoring: ScoringSection = ScoringSection()
    safety: SafetySection = SafetySection()
    evaluation: EvaluationSection = EvaluationSection()
    diagnostics: DiagnosticsSection = DiagnosticsSection()
    training: dict[str, Any]
    """Keyword arguments of transformers.TrainingArguments that were written."""

    _source_path: Path | None = PrivateAttr(None)
    _warnings: tuple[str, ...] = PrivateAttr(())

    @property
    def source_path(self) -> Path | None:
        """The file the recipe was read from."""
        return self._source_path

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed and probably not meant, a sentence each."""
        return self._warnings

    def objective(self) -> Objective:
        """The losses bound to their hyperparameters.

        Raises: `ConfigError` for a recipe that was not made by `load_recipe` and has a wrong loss.
        """
        objective, problems = bind(self.loss)
        if objective is None:
            raise ConfigError(*problems)
        return objective

    def resolved(self) -> str:
        """The recipe as YAML that stands by itself: no base, absolute paths, every hyperparameter written out.

        Settings that would have no effect are left out, because a recipe that holds one is refused.
        """
        objective = self.objective()
        sections = self.model_dump(exclude={"loss", "training"})
        self._drop_what_has_no_effect(sections, objective)
        losses = [_plain_loss(loss, weight) for loss, weight in zip(objective.losses, objective.weights, strict=True)]
        unused = unused_arguments(self.training)
        tree = _without_nulls(sections)
        tree["loss"] = losses if len(losses) > 1 else losses[0]
        tree["training"] = {name: value for name, value in self.training.items() if name not in unused}
        return _as_yaml({name: tree[name] for name in type(self).model_fields if name in tree})

    def _drop_what_has_no_effect(self, tree: dict[str, Any], objective: Objective) -> None:
        if Need.REFERENCE not in objective.needs:
            del tree["reference"]
        if self.data.max_length is None:
            del tree["data"]["truncate"]
        if self.diagnostics.probes == 0:
            del tree["diagnostics"]["every"]
        if self.model.adapter is not None and self.model.adapter.mode == "continue":
            tree["model"]["adapter"] = {"mode": "continue", "start": self.model.adapter.start}


def _as_yaml(tree: Mapping[str, Any]) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.allow_unicode = True
    yaml.width = 1000
    out = io.StringIO()
    yaml.dump(tree, out)
    return out.getvalue()


def _plain_loss(loss: Loss, weight: float) -> dict[str, Any]:
    return {**({} if weight == 1.0 else {"weight": weight}), **loss.describe()}


def _without_nulls(tree: Any) -> Any:
    """Without null and empty mappings, which are what sections say by default; null for `max_length` is no default."""
    if isinstance(tree, Mapping):
        items = {k: _without_nulls(v) for k, v in tree.items() if v is not None or k == "max_length"}
        return {k: v for k, v in items.items() if v != {}}
    return [_without_nulls(item) for item in tree] if isinstance(tree, list | tuple) else tree


def bind(losses: Any) -> tuple[Objective | None, list[Problem]]:
    """The objective of the `loss` section (a mapping, or a list of them), or what is wrong with it, placed in it."""
    if isinstance(losses, Mapping):
        items: list[tuple[tuple[str | int, ...], Any]] = [(("loss",), losses)]
    elif isinstance(losses, list | tuple) and losses:
        items = [(("loss", number), item) for number, item in enumerate(losses)]
    else:
        hint = f"; write `loss: {{name: {losses}}}`" if isinstance(losses, str) else ""
        return None, [
            Problem(f"loss must be a mapping with a name, or a list of them; got {shown(losses)}{hint}.", ("loss",))
        ]
    bound: list[tuple[Loss, float]] = []
    problems: list[Problem] = []
    for path, item in items:
        try:
            bound.append(_bound(item, path))
        except ConfigError as error:
            problems += error.problems
    if problems:
        return None, problems
    try:
        return Objective.of(*(loss for loss, _ in bound), weights=[weight for _, weight in bound]), []
    except ConfigError as error:
        return None, [problem.under("loss") for problem in error.problems]


def _bound(item: Any, path: tuple[str | int, ...]) -> tuple[Loss, float]:
    """One loss and its weight. Raises: `ConfigError` with every problem of it."""
    if not isinstance(item, Mapping):
        hint = f" Write {{name: {item}}}." if isinstance(item, str) else ""
        raise ConfigError(Problem(f"a loss must be a mapping with a name; got {shown(item)}.{hint}", path))
    options = {key: value for key, value in item.items() if key not in {"name", "weight"}}
    problems: list[Problem] = []
    weight = item.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight <= 0:
        problems.append(Problem(f"weight must be a number greater than 0; got {shown(weight)}.", (*path, "weight")))
    loss: Loss | None = None
    try:
        loss = _named_loss(item.get("name"), options, path)
    except ConfigError as error:
        problems += error.problems
    if problems or loss is None:
        raise ConfigError(*problems)
    return loss, float(weight)


def _named_loss(name: Any, options: Mapping[str, Any], path: tuple[str | int, ...]) -> Loss:
    known: set[str] = set()
    text = ""
    if name is None:
        text = "loss.name is required and not given; `prefopt losses` lists the names."
    elif not isinstance(name, str):
        text = f"loss.name must be text; got {shown(name)}."
    else:
        text = unknown_loss(name) or ""
        try:
            known = {"modify", *loss_spec(name).params.model_fields}
        except ConfigError as error:
            text = text or str(error)
    strange = {key: advice((*path, key)) for key in options if key not in known}
    problems = [Problem(text, (*path, "name") if name is not None else path)] if text else []
    problems += [Problem(told, (*path, key)) for key, told in strange.items() if told]
    if not text:
        try:
            loss = get_loss(str(name), **{key: value for key, value in options.items() if not strange.get(key)})
        except ConfigError as error:
            problems += [problem.under(*path) for problem in error.problems]
    if problems:
        raise ConfigError(*problems)
    return loss
