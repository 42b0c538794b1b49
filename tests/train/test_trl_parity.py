"""TRL 1.16 is the oracle: the same model, rows and order give the same run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from prefopt import PreferenceTrainer, get_loss
from tests.train.tiny import arguments, flat, history

STORIES = [
    ("Once upon a time there was a", " little dog who loved to play in the park.", " cat."),
    ("The girl looked at the", " sky and saw a big red balloon.", " wall and the wall and the wall and the wall."),
    ("Tom was sad because", " he lost his toy car in the sand.", " banana green the."),
    ("One day, Lily and her mom went to the", " beach.", " beach beach to swim and swim and eat and eat and run away."),
    ("The bird said,", ' "I can help you find your way home."', ' "No."'),
    ("Ben wanted to", " share his cake with all of his friends.", " not."),
]


def stories(count: int) -> Dataset:
    rows = [STORIES[i % len(STORIES)] for i in range(count)]
    marked = [(f"{p}", f"{c} {'And then. ' * (i // len(STORIES))}", r) for i, (p, c, r) in enumerate(rows)]
    return Dataset.from_list([{"prompt": p, "chosen": c, "rejected": r} for p, c, r in marked])


def trl_run(model: Any, tokenizer: Any, folder: Path, **options: Any) -> Any:
    from trl import DPOConfig, DPOTrainer

    base = arguments(folder, max_steps=10, per_device_train_batch_size=4).to_dict()
    kept = {
        key: base[key]
        for key in ("use_cpu", "report_to", "disable_tqdm", "save_strategy", "logging_steps", "learning_rate")
    }
    kept |= {
        "lr_scheduler_type": "constant",
        "max_steps": 10,
        "per_device_train_batch_size": 4,
        "train_sampling_strategy": "sequential",
    }
    config = DPOConfig(
        output_dir=str(folder), bf16=False, gradient_checkpointing=False, max_length=256, **kept, **options
    )
    set_seed(config.seed)
    trainer = DPOTrainer(model=copy.deepcopy(model), args=config, train_dataset=stories(40), processing_class=tokenizer)
    trainer.train()
    return trainer


def our_run(model: Any, tokenizer: Any, rows: Any, folder: Path, loss: Any) -> PreferenceTrainer:
    args = arguments(folder, max_steps=10, train_sampling_strategy="sequential")
    trainer = PreferenceTrainer(
        copy.deepcopy(model), args, objective=loss, train_dataset=rows, processing_class=tokenizer
    )
    trainer.train()
    return trainer


def as_rows(dataset: Dataset) -> list[dict[str, Any]]:
    """TRL's own tokenized rows in our shape, so that both train on the same ids."""
    rows = []
    for number, row in enumerate(dataset):
        responses = [row["chosen_ids"], row["rejected_ids"]]
        masks = [[True] * len(ids) for ids in responses]
        length = len(row["prompt_ids"]) + max(map(len, responses))
        rows.append(
            {
                "id": str(number),
                "prompt_ids": row["prompt_ids"],
                "responses": responses,
                "masks": masks,
                "length": length,
            }
        )
    return rows


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"loss_type": ["sigmoid"], "beta": 0.1}, ("dpo", {"beta": 0.1})),
        ({"loss_type": ["ipo"], "beta": 0.1}, ("ipo", {"tau": 0.1})),
        ({"loss_type": ["robust"], "beta": 0.1, "label_smoothing": 0.1}, ("robust_dpo", {"beta": 0.1, "epsilon": 0.1})),
    ],
    ids=["sigmoid", "ipo", "robust"],
)
def test_ten_steps_agree_with_trl(
    theirs: dict[str, Any], ours: tuple[str, dict[str, Any]], tmp_path: Path, asset: Callable[[str], Path]
) -> None:
    stories260k = asset("models/stories260k")
    model = AutoModelForCausalLM.from_pretrained(stories260k, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(stories260k)
    oracle = trl_run(model, tokenizer, tmp_path / "trl", **theirs)
    run = our_run(model, tokenizer, as_rows(oracle.train_dataset), tmp_path / "ours", get_loss(ours[0], **ours[1]))
    names = ["loss", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"]
    for name in [*names, "logps/chosen", "logps/rejected"]:
        expected, found = history(oracle, name), history(run, name)
        assert len(found) == 10
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6), name
    moved = flat(oracle.model) - flat(model)
    assert moved.norm() > 0.1, "the weights must move visibly for this to mean anything"
    assert (flat(run.model) - flat(oracle.model)).norm() / moved.norm() < 1e-4
