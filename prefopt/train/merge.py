"""A run's adapter into the weights it was trained on, checked by comparing logits."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prefopt.config import load_recipe
from prefopt.config.sections import ModelSection
from prefopt.errors import ConfigError, RunError
from prefopt.runs import RECIPE, RECORD, read_json
from prefopt.scoring.reference import AdapterOffReference
from prefopt.train.model import fingerprint, load_model, load_tokenizer, merged_start

logger = logging.getLogger(__name__)

_FULL, _HALF = 1e-3, 5e-2  # largest difference of a logit, relative to the largest logit


@dataclass(frozen=True)
class Merged:
    """Where the merged model lies, and by how much its logits differ from the adapter's, relative to the largest."""

    folder: Path
    gap: float


def merge(run: Path, out: Path, *, dtype: str | None = None) -> Merged:
    """Write the run's model without an adapter; `dtype` is that of the base unless given.

    Raises: `ConfigError` for a run without an adapter or a folder that is taken; `RunError` when the merged model,
    loaded from the disk with plain transformers, says something else than the adapter did.
    """
    section = _section(run)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is there already and not an empty folder; nothing was written.")
    from peft import PeftModel

    base = load_model(
        section.name_or_path,
        revision=section.revision,
        dtype=dtype or section.dtype,
        trust_remote_code=section.trust_remote_code,
    )
    if section.adapter is not None and section.adapter.mode == "merge":
        base = merged_start(base, str(section.adapter.start))
    if dtype in (None, section.dtype):
        _check_base(run, base, section)
    try:
        model: Any = PeftModel.from_pretrained(base, str(run))
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{run}: its adapter does not fit {section.name_or_path}: {error}") from error
    tokenizer = load_tokenizer(str(run))
    ids = _probe(len(tokenizer))
    before = _logits(model, ids)
    merged = model.merge_and_unload(safe_merge=True)
    out.mkdir(parents=True, exist_ok=True)
    merged.save_pretrained(out)
    tokenizer.save_pretrained(out)
    again = load_model(str(out), dtype=dtype or section.dtype, trust_remote_code=section.trust_remote_code)
    gap = _gap(before, _logits(again, ids))
    tolerance = _FULL if (dtype or section.dtype) == "float32" else _HALF
    if not gap <= tolerance:
        raise RunError(
            f"the merged model in {out} and the adapter differ by {gap:.2g} of the largest logit (allowed "
            f"{tolerance:g}); do not use it. Merging with --dtype float32 loses the least."
        )
    return Merged(out, gap)


def _check_base(run: Path, base: Any, section: ModelSection) -> None:
    """Raises: `ConfigError` when the model at that place is not the one the adapter was trained on any more."""
    known = read_json(run / RECORD).get("reference", {}) if (run / RECORD).is_file() else {}
    comparable = known.get("kind") == AdapterOffReference.KIND and section.quantization is None
    if comparable and known.get("fingerprint") not in (None, fingerprint(base)):
        raise ConfigError(
            f"{section.name_or_path} is not the model that {run} was trained on: its weights have the fingerprint "
            f"{fingerprint(base)}, and the run's record says {known['fingerprint']}. Put that model back first."
        )


def _section(run: Path) -> ModelSection:
    if not run.is_dir():
        raise ConfigError(f"{run} is no run directory.")
    if not (run / "adapter_config.json").is_file():
        kind = "holds full weights already" if (run / "config.json").is_file() else "holds no trained adapter"
        raise ConfigError(f"{run} {kind}: there is nothing to merge.")
    if not (run / RECIPE).is_file():
        raise ConfigError(f"{run} has no {RECIPE}, which says what the adapter was trained on.")
    return load_recipe(run / RECIPE).model


def _probe(vocabulary: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (2, 48), generator=generator)


@torch.no_grad()
def _logits(model: Any, ids: Tensor) -> Tensor:
    model.eval()
    logits: Tensor = model(input_ids=ids.to(next(model.parameters()).device)).logits
    return logits.float()


def _gap(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / one.abs().max().clamp(min=1e-6))
