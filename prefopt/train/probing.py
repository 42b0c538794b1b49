"""The probe set of a recipe, at work in a training run."""

from __future__ import annotations

from typing import Any

from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase, TrainingArguments

from prefopt.config.sections import DiagnosticsSection
from prefopt.data.sampler import Rows
from prefopt.diagnostics.callback import ProbeCallback
from prefopt.diagnostics.probes import Probes, ProbeSet
from prefopt.runs import DIAGNOSTICS, RunDirectory
from prefopt.scoring.policy import Scorer


def probing(
    section: DiagnosticsSection,
    rows: Rows,
    tokenizer: PreTrainedTokenizerBase,
    scorer: Scorer,
    args: TrainingArguments,
    run: RunDirectory,
) -> list[ProbeCallback]:
    """What looks at some of the training rows; nothing where the recipe wants no probes."""
    if section.probes == 0:
        return []
    probes = Probes(
        ProbeSet.of(rows, section.probes),
        scorer,
        tokenizer,
        run.path / DIAGNOSTICS,
        batch_size=args.per_device_eval_batch_size,
        rank=args.process_index,
        world=args.world_size,
        gather=_everyone if args.world_size > 1 else list,
    )
    return [ProbeCallback(probes, every=section.every)]


def _everyone(found: list[Any]) -> list[Any]:
    return gather_object(found)  # type: ignore[no-any-return]
