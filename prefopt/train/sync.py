"""A reference that follows the policy (TR-DPO, arXiv:2404.09656, section 3)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from prefopt.errors import ConfigError
from prefopt.scoring.reference import ModelReference

logger = logging.getLogger(__name__)

WEIGHTS = "reference.safetensors"
"""The moved reference in a checkpoint."""


class MoveReference(TrainerCallback):
    """Every `every` optimizer steps the reference becomes mix * policy + (1 - mix) * reference, weight by weight.

    With full weights these are the model's, with an adapter the adapter's own matrices: mixing those is not mixing
    their product, except at mix 1. Checkpoints keep the reference as it stands.
    """

    def __init__(self, reference: ModelReference, *, every: int, mix: float) -> None:
        self.reference, self.every, self.mix = reference, every, mix
        self.moved = False  # after the step that just ended

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.every > state.max_steps:
            text = "reference.sync.every is %d and training has %d steps: the reference will never move."
            logger.warning(text, self.every, state.max_steps)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: nn.Module, **_: Any
    ) -> None:
        self.moved = state.global_step % self.every == 0
        if self.moved:
            self.reference.follow(model, self.mix)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            weights = {name: value.contiguous() for name, value in self.reference.weights().items()}
            save_file(weights, Path(args.output_dir) / f"checkpoint-{state.global_step}" / WEIGHTS)

    def restore(self, checkpoint: Path) -> None:
        """The reference as it stood when the checkpoint was written.

        Raises: `ConfigError` when the checkpoint holds none.
        """
        if not (checkpoint / WEIGHTS).is_file():
            raise ConfigError(f"{checkpoint} holds no {WEIGHTS}: it was written without reference.sync.")
        self.reference.restore(load_file(checkpoint / WEIGHTS))
