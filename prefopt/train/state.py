"""What a checkpoint knows beyond weights and optimizer, and the refusal to resume another run from it.

`prefopt_state.json` is written last, so a checkpoint that holds it is whole.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINING_ARGS_NAME

from prefopt.errors import ConfigError, RunError
from prefopt.runs import CHECKPOINT_STATE, RunDirectory, read_json, write_json
from prefopt.scoring.reference import evaluating

if TYPE_CHECKING:
    from prefopt.train.trainer import PreferenceTrainer

logger = logging.getLogger(__name__)


class CheckpointState(TrainerCallback):
    """Writes `prefopt_state.json` into each checkpoint."""

    def __init__(self, identity: dict[str, Any]) -> None:
        self.identity = identity
        self.trainer: PreferenceTrainer | None = None

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        assert self.trainer is not None
        probe, pending = probe_logps(self.trainer), self.trainer.pending()  # on every rank: both may gather
        if not self.trainer.is_world_process_zero():
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        (folder / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle, and `recipe.yaml` says the same
        content = {
            **self.identity,
            "step": state.global_step,
            "of": state.max_steps,
            "probe": probe,
            "pending": pending,
            "loss_state": self.trainer.objective.dump_state(self.trainer.loss_state),
        }
        write_json(folder / CHECKPOINT_STATE, content)


@torch.no_grad()
def probe_logps(trainer: PreferenceTrainer, *, rows: int = 2) -> dict[str, list[list[float]]]:
    """Whole-response log-probabilities `[rows][R]` of the first training rows under policy and reference, in nats."""
    found = [{**trainer.train_dataset[i], "index": i} for i in range(min(rows, len(trainer.train_dataset)))]
    batch = trainer._prepare_inputs(trainer.collator(found))
    model = trainer.model
    with evaluating(model):
        stats = {"policy": trainer.scorer(model, batch), "reference": trainer.reference(batch)}
    return {
        who: value.logps.double().masked_fill(~batch["mask"], 0).sum(-1).tolist()
        for who, value in stats.items()
        if value is not None
    }


def check_resume(checkpoint: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint's state, when it belongs to this objective, reference and data.

    Raises: `ConfigError` naming what differs.
    """
    try:
        saved: dict[str, Any] = read_json(checkpoint / CHECKPOINT_STATE)
    except RunError as error:
        raise ConfigError(f"{checkpoint} is not a whole checkpoint of prefopt: {error}") from None
    for key, now in json.loads(json.dumps(identity)).items():
        if saved.get(key) != now:
            raise ConfigError(
                f"{checkpoint.name} was written with another {key}: {_short(saved.get(key))}, now {_short(now)}. "
                "A resumed run would be neither the one nor the other; start afresh, or restore the setting."
            )
    return saved


def check_probe(trainer: PreferenceTrainer, saved: dict[str, Any], *, tolerance: float = 1e-3) -> None:
    """Compare policy and reference with what they said when the checkpoint was written.

    Raises: `RunError` when a whole-response log-probability differs by more than `tolerance`, relative.
    """
    now = probe_logps(trainer)
    for who, values in saved["probe"].items():
        before, after = torch.tensor(values), torch.tensor(now[who])
        if before.shape != after.shape or not torch.allclose(before, after, rtol=tolerance, atol=tolerance):
            raise RunError(
                f"the {who} restored from the checkpoint gives other log-probabilities than when it was saved: "
                f"{_short(before.tolist())} then, {_short(after.tolist())} now."
            )


def newest_checkpoint(run: RunDirectory) -> Path | None:
    """The newest whole checkpoint, None when there is none."""
    found = run.checkpoints()
    return found[-1] if found else None


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 200 else text[:197] + "..."
