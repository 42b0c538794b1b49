"""A loss on many responses trains on those that it draws for the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from prefopt import PreferenceTrainer, get_loss
from tests.train.tiny import arguments, flat, history, tiny_model, tiny_rows


def trainer(
    folder: Path, *, responses: int = 5, loss: dict[str, Any] | None = None, **changes: Any
) -> PreferenceTrainer:
    return PreferenceTrainer(
        tiny_model(),
        arguments(folder, **{"learning_rate": 1e-3, "max_steps": 6, **changes}),
        objective=get_loss("mc_po", **(loss or {})),
        train_dataset=tiny_rows(8, responses=responses),
        eval_dataset=tiny_rows(4, responses=responses),
    )


def test_only_the_drawn_responses_are_compared_in_training_and_all_in_evaluation(tmp_path: Path) -> None:
    run = trainer(tmp_path, loss={"num_negatives": 2})
    run.train()
    assert history(run, "mc_po/negatives") == [2.0] * 6
    assert run.evaluate()["eval_mc_po/negatives"] == 4
    assert history(run)[0] == pytest.approx(torch.tensor(3.0).log().item(), abs=1e-3)
    assert history(run)[-1] < history(run)[0]


def test_with_one_rejected_response_it_is_dpo(tmp_path: Path) -> None:
    ours = trainer(tmp_path / "ours", responses=2)
    plain = PreferenceTrainer(
        tiny_model(),
        arguments(tmp_path / "plain", learning_rate=1e-3, max_steps=6),
        objective=get_loss("dpo"),
        train_dataset=tiny_rows(8),
    )
    for run in (ours, plain):
        run.train()
    torch.testing.assert_close(flat(ours.model), flat(plain.model), rtol=1e-5, atol=1e-6)


def test_the_draw_does_not_depend_on_how_a_step_is_cut(tmp_path: Path) -> None:
    one = trainer(tmp_path / "one", per_device_train_batch_size=8)
    many = trainer(tmp_path / "many", per_device_train_batch_size=1, gradient_accumulation_steps=8)
    for run in (one, many):
        run.train()
    torch.testing.assert_close(flat(one.model), flat(many.model), rtol=1e-4, atol=1e-5)


def test_another_seed_draws_others_and_hardest_first_draws_none(tmp_path: Path) -> None:
    found = {}
    for name, loss in (("kernel", {}), ("argmax", {"sampling": "argmax"})):
        for seed in (0, 1):
            run = trainer(
                tmp_path / f"{name}{seed}", loss=loss, seed=seed, data_seed=0, max_steps=1, learning_rate=1e-2
            )
            run.train()
            found[name, seed] = flat(run.model)
    assert not torch.equal(found["kernel", 0], found["kernel", 1])
    assert torch.equal(found["argmax", 0], found["argmax", 1])
