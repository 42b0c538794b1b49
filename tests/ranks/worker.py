"""What each rank runs: a short training of the tiny model, whose trajectory rank 0 writes down.

Started as `torchrun --nproc_per_node N -m tests.ranks.worker FOLDER JSON`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from prefopt import PreferenceTrainer, get_loss
from tests.train.tiny import arguments, flat, history, tiny_model, tiny_rows


def run(
    folder: Path, *, rows: int, batch: int, steps: int, evaluate_first: bool = False, **changes: Any
) -> PreferenceTrainer:
    """Train the tiny model on the first `rows` rows with `batch` rows per device, and evaluate on seven more."""
    args = arguments(
        folder, per_device_train_batch_size=batch, max_steps=steps, per_device_eval_batch_size=2, **changes
    )
    data = tiny_rows(rows + 7)
    trainer = PreferenceTrainer(
        tiny_model(), args, objective=get_loss("dpo"), train_dataset=data[:rows], eval_dataset={"held": data[rows:]}
    )
    if evaluate_first:
        trainer.evaluate()
    trainer.train()
    return trainer


def trajectory(trainer: PreferenceTrainer) -> dict[str, Any]:
    """Losses, metrics, evaluation and final parameters."""
    evaluation = {
        k: v for k, v in trainer.evaluate().items() if k != "epoch" and not k.endswith(("time", "per_second"))
    }
    names = ("loss", "grad_norm", "rewards/margins", "rewards/accuracies", "logps/chosen", "num_tokens")
    return {
        **{name: history(trainer, name) for name in names},
        "eval": evaluation,
        "parameters": flat(trainer.model).tolist(),
    }


def main() -> None:
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    trainer = run(folder / "run", **options)
    found = trajectory(trainer)  # evaluation is collective
    if trainer.is_world_process_zero():
        (folder / "trajectory.json").write_text(json.dumps({"world": trainer.args.world_size, **found}))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
