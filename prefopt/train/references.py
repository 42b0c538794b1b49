"""Which reference a recipe asks for."""

from __future__ import annotations

import copy
from typing import Any

from transformers import PreTrainedTokenizerBase

from prefopt.config import Recipe
from prefopt.losses import Objective
from prefopt.scores import Need
from prefopt.scoring.policy import Scorer
from prefopt.scoring.reference import (
    AdapterOffReference,
    FrozenTwinReference,
    ModelReference,
    NoReference,
    Reference,
    freeze,
)
from prefopt.train.model import fingerprint, load_model, load_tokenizer
from prefopt.train.preflight import check_reference_tokenizer


def choose_reference(
    recipe: Recipe, model: Any, objective: Objective, scorer: Scorer, tokenizer: PreTrainedTokenizerBase
) -> Reference:
    """The reference that the recipe asks for; nothing is loaded when no loss needs one."""
    section, adapter = recipe.reference, recipe.model.adapter
    if Need.REFERENCE not in objective.needs or section.source == "none":
        return NoReference()
    if section.source == "model":
        other = load_model(
            section.name_or_path or "",
            revision=section.revision,
            dtype=recipe.model.dtype,
            attn_implementation=recipe.model.attn_implementation,
            trust_remote_code=recipe.model.trust_remote_code,
        )
        check_reference_tokenizer(tokenizer, load_tokenizer(section.name_or_path or "", revision=section.revision))
        return ModelReference(freeze(other), scorer, {"model": section.name_or_path, "fingerprint": fingerprint(other)})
    started = adapter is not None and adapter.mode == "continue"
    identity = {"model": recipe.model.name_or_path, "fingerprint": fingerprint(model, adapters=started)}
    if adapter is None:
        return ModelReference(freeze(copy.deepcopy(model)), scorer, identity)
    if adapter.mode == "continue":
        return FrozenTwinReference.of(model, scorer, identity | {"adapter": str(adapter.start)})
    return AdapterOffReference(
        model, scorer, identity | ({"merged": str(adapter.start)} if adapter.mode == "merge" else {})
    )
