"""Which reference a recipe or a trainer asks for."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase, TrainingArguments

from prefopt.config import Recipe
from prefopt.data.collate import Collator
from prefopt.data.sampler import Rows
from prefopt.losses import Objective
from prefopt.scores import Need
from prefopt.scoring.modes import stored_for_autocast
from prefopt.scoring.policy import Backend, LayoutName, Scorer
from prefopt.scoring.reference import (
    AdapterOffReference,
    FrozenTwinReference,
    ModelReference,
    NoReference,
    Reference,
    evaluating,
    freeze,
)
from prefopt.train.cached import served
from prefopt.train.model import fingerprint, load_model, load_tokenizer
from prefopt.train.preflight import check_reference_tokenizer


def choose_reference(
    recipe: Recipe,
    model: Any,
    objective: Objective,
    scorer: Scorer,
    tokenizer: PreTrainedTokenizerBase,
    sets: Sequence[Rows] = (),
) -> Reference:
    """The reference that the recipe asks for; nothing is loaded when no loss needs one.

    Where a cache holds every response of `sets`, it serves, and no second model stays in memory.
    """
    if Need.REFERENCE not in objective.needs or recipe.reference.source == "none":
        return NoReference()
    live = live_reference(recipe, model, scorer, tokenizer)
    pad = tokenizer.pad_token_id
    with evaluating(live.model):
        cached = served(recipe, live, tokenizer, objective, sets, Collator(0 if pad is None else pad))
    return cached or lasting(live, recipe)


def live_reference(recipe: Recipe, model: Any, scorer: Scorer, tokenizer: PreTrainedTokenizerBase) -> ModelReference:
    """The reference as it is before the first step, when the model itself still is what it starts as."""
    section, adapter = recipe.reference, recipe.model.adapter
    if section.source == "model":
        other = load_model(
            section.name_or_path or "",
            revision=section.revision,
            dtype=recipe.model.dtype,
            attn_implementation=recipe.model.attn_implementation,
            trust_remote_code=recipe.model.trust_remote_code,
        )
        check_reference_tokenizer(tokenizer, load_tokenizer(section.name_or_path or "", revision=section.revision))
        frozen = freeze(other) if section.sync else stored_for_autocast(freeze(other), scorer.autocast)
        return ModelReference(frozen, scorer, {"model": section.name_or_path, "fingerprint": fingerprint(other)})
    started = adapter is not None and adapter.mode == "continue"
    identity = {"model": recipe.model.name_or_path, "fingerprint": fingerprint(model, adapters=started)}
    if adapter is None:
        return ModelReference(model, scorer, identity)
    if adapter.mode == "continue":
        return FrozenTwinReference(model, scorer, identity | {"adapter": str(adapter.start)})
    return AdapterOffReference(
        model, scorer, identity | ({"merged": str(adapter.start)} if adapter.mode == "merge" else {})
    )


def lasting(live: ModelReference, recipe: Recipe) -> ModelReference:
    """The same, made to stay what it is while the model is trained, or to move only when it is told to."""
    moves = recipe.reference.sync is not None
    if recipe.reference.source == "model" or (isinstance(live, AdapterOffReference) and not moves):
        return live
    if isinstance(live, FrozenTwinReference | AdapterOffReference):
        return FrozenTwinReference.of(live.model, live.scorer, live.identity)
    copied = freeze(copy.deepcopy(live.model)) if moves else _frozen_copy(live.model, live.scorer)
    return ModelReference(copied, live.scorer, live.identity)


def default_scorer(args: TrainingArguments, backend: Backend = "auto", layout: LayoutName = "auto") -> Scorer:
    """A scorer that computes in the precision the training arguments ask for."""
    precision = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None
    return Scorer(backend=backend, layout=layout, autocast=precision)


def initial_reference(model: nn.Module, needs: frozenset[Need], scorer: Scorer) -> Reference:
    """The model as it stands: nothing if no loss needs it, its adapter switched off, or a frozen copy."""
    if Need.REFERENCE not in needs:
        return NoReference()
    if hasattr(model, "disable_adapter"):
        return AdapterOffReference(model, scorer)
    return ModelReference(_frozen_copy(model, scorer), scorer)


def _frozen_copy(model: nn.Module, scorer: Scorer) -> nn.Module:
    return stored_for_autocast(freeze(copy.deepcopy(model)), scorer.autocast)
