"""A run's adapter into the weights it was trained on, checked by comparing logits."""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prefopt.config import load_recipe
from prefopt.config.sections import ModelSection
from prefopt.errors import ConfigError, RunError
from prefopt.runs import RECIPE, RECORD, read_json
from prefopt.train.model import fingerprint, load_model, load_tokenizer, merged_start

logger = logging.getLogger(__name__)

_FULL, _HALF = 1e-3, 5e-2  # largest difference of a logit, relative to the largest logit
_LOST = 0.5  # of what the adapter changes: rounding to bfloat16 can swallow a small one whole


@dataclass(frozen=True)
class Merged:
    """Where the merged model lies, and by how much its logits differ from the adapter's.

    `gap` is the largest difference, relative to the largest logit; `lost` the share of what the adapter changes in the
    logits (root mean squares) that the merged model says otherwise, 0 for an adapter that changes nothing.
    """

    folder: Path
    gap: float
    lost: float


def merge(run: Path, out: Path, *, dtype: str | None = None) -> Merged:
    """Write the run's model without an adapter; `dtype` is that of the base unless given.

    Raises: `ConfigError` for a run without an adapter or a folder that is taken; `RunError` when the merged model,
    loaded from the disk with plain transformers, says something else than the adapter did. Then no folder is left.
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
    adapted = _logits(model, ids)
    with model.disable_adapter():
        plain = _logits(model, ids)
    merged = model.merge_and_unload(safe_merge=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-", ignore_cleanup_errors=True) as temporary:
        made = Path(temporary) / out.name
        merged.save_pretrained(made)
        tokenizer.save_pretrained(made)
        again = load_model(str(made), dtype=dtype or section.dtype, trust_remote_code=section.trust_remote_code)
        gap, lost = _compared(adapted, plain, _logits(again, ids))
        tolerance = _FULL if (dtype or section.dtype) == "float32" else _HALF
        if not (gap <= tolerance and lost <= _LOST):
            raise RunError(
                f"the merged model and the adapter differ by {gap:.2g} of the largest logit (allowed {tolerance:g}), "
                f"and by {100 * lost:.0f} % of what the adapter changes (allowed {100 * _LOST:.0f} %), so nothing was "
                "written. Merging with --dtype float32 loses the least."
            )
        if out.exists():  # an empty folder
            out.rmdir()
        shutil.move(made, out)
    return Merged(out, gap, lost)


def _check_base(run: Path, base: Any, section: ModelSection) -> None:
    """Raises: `ConfigError` when the model at that place is not the one the adapter was trained on any more."""
    known = read_json(run / RECORD).get("base") if (run / RECORD).is_file() else None
    if section.quantization is None and known not in (None, found := fingerprint(base)):
        raise ConfigError(
            f"{section.name_or_path} is not the model that {run} was trained on: its weights have the fingerprint "
            f"{found}, and the run's record says {known}. Put that model back first."
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


def _compared(adapted: Tensor, plain: Tensor, merged: Tensor) -> tuple[float, float]:
    """`gap` and `lost` of the logits with the adapter, without it, and merged."""
    largest = adapted.abs().max().clamp(min=1e-6)
    changed, wrong = (adapted - plain).norm(), (adapted - merged).norm()
    lost = wrong / changed if changed > 1e-5 * adapted.norm() else torch.zeros(())
    return float((adapted - merged).abs().max() / largest), float(lost)
