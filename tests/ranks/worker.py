"""What each rank runs: short trainings of the tiny model, whose trajectories rank 0 writes down.

Started as `torchrun --nproc_per_node N -m tests.ranks.worker FOLDER JSON`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from prefopt import PreferenceTrainer, get_loss
from prefopt.cli import leave
from prefopt.losses import Loss
from prefopt.scoring import Scorer
from prefopt.scoring.reference import ModelReference, freeze
from prefopt.train.refusals import Coupling
from tests.train.tiny import (
    arguments,
    bad_row_model,
    flat,
    history,
    rows_of_which_one_holds,
    tiny_model,
    tiny_rows,
)


def run(
    folder: Path,
    *,
    rows: int,
    batch: int,
    steps: int,
    evaluate_first: bool = False,
    loss: dict[str, Any] | None = None,
    coupling: Coupling = "micro",
    poisoned: bool = False,
    tokens_per_batch: int | None = None,
    **changes: Any,
) -> PreferenceTrainer:
    """Train the tiny model on the first `rows` rows with `batch` rows per device, and evaluate on seven more.

    `poisoned` gives NaN for row 3, which is left out.
    """
    args = arguments(
        folder, per_device_train_batch_size=batch, max_steps=steps, per_device_eval_batch_size=2, **changes
    )
    objective = named(loss or {"name": "dpo"})
    data = rows_of_which_one_holds(96, count=rows + 7) if poisoned else rows_for(objective, rows + 7)
    trainer = PreferenceTrainer(
        bad_row_model() if poisoned else tiny_model(),
        args,
        objective=objective,
        train_dataset=data[:rows],
        eval_dataset={"held": data[rows:]},
        coupling=coupling,
        tokens_per_batch=tokens_per_batch,
        reference=ModelReference(freeze(tiny_model()), Scorer()) if poisoned else None,
        nonfinite="skip" if poisoned else "stop",
    )
    if evaluate_first:
        trainer.evaluate()
    trainer.train()
    return trainer


def named(loss: dict[str, Any]) -> Loss:
    """The loss of `{"name": ..., **options}`."""
    return get_loss(loss["name"], **{key: value for key, value in loss.items() if key != "name"})


def rows_for(loss: Loss, count: int) -> list[dict[str, Any]]:
    """Pairs, or single responses that are desirable in turn."""
    if loss.responses == "pair":
        return tiny_rows(count)
    return [{**row, "label": number % 2 == 0} for number, row in enumerate(tiny_rows(count, responses=1))]


def trajectory(trainer: PreferenceTrainer) -> dict[str, Any]:
    """Losses, metrics, evaluation, state and final parameters."""
    evaluation = {
        k: v for k, v in trainer.evaluate().items() if k != "epoch" and not k.endswith(("time", "per_second"))
    }
    names = ("loss", "grad_norm", "rewards/margins", "rewards/accuracies", "logps/chosen", "num_tokens")
    moved = ("displacement/chosen_delta_per_token", "coefficients/chosen", "coefficients/rejected")
    return {
        **{name: history(trainer, name) for name in (*names, *moved)},
        "eval": evaluation,
        "parameters": flat(trainer.model).tolist(),
        "state": trainer.objective.dump_state(trainer.loss_state),
    }


def main() -> None:
    """Several runs by name, in one group of processes."""
    folder, runs = Path(sys.argv[1]), json.loads(sys.argv[2])
    found = {}
    for name, options in runs.items():
        trainer = run(folder / name, **options)
        found[name] = {"world": trainer.args.world_size, **trajectory(trainer)}  # evaluation is collective
    if trainer.is_world_process_zero():
        (folder / "trajectories.json").write_text(json.dumps(found))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
    leave(0)
