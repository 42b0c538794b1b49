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
from prefopt.train.sharding import sharding_of


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
    together = sharding_of(args) is not None  # one process cannot run the model alone, so all read everything
    probes = Probes(
        ProbeSet.of(rows, section.probes),
        scorer,
        tokenizer,
        run.path / DIAGNOSTICS,
        batch_size=1 if together else args.per_device_eval_batch_size,  # whole logits, where weights are shared out
        rank=0 if together else args.process_index,
        world=1 if together else args.world_size,
        gather=_everyone if args.world_size > 1 and not together else list,
        writes=args.process_index == 0,
    )
    return [ProbeCallback(probes, every=section.every)]


def _everyone(found: list[Any]) -> list[Any]:
    return gather_object(found)  # type: ignore[no-any-return]
