"""A reference that follows the policy, with full weights and with an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from prefopt import ConfigError, load_recipe, train
from prefopt.train.build import Parts, assemble
from tests.train.folder import recipe
from tests.train.test_run import assert_same_weights, training

ADAPTER = {"r": 4, "target_modules": ["q_proj", "v_proj"]}
TRAINING = {"learning_rate": 1e-2, "max_steps": 5, "lr_scheduler_type": "constant"}


def built(folder: Path, adapter: dict[str, Any] | None, sync: dict[str, Any], **training: Any) -> Parts:
    model = {"name_or_path": str(folder / "model"), "adapter": adapter}
    return assemble(recipe(folder, model=model, reference={"sync": sync}, training=TRAINING | training))


@pytest.mark.parametrize("adapter", [None, ADAPTER], ids=["full", "adapter"])
def test_the_reference_is_the_mix_of_what_both_were(tmp_path: Path, adapter: dict[str, Any] | None) -> None:
    trainer = built(tmp_path, adapter, {"every": 2, "mix": 0.25}).trainer
    reference: Any = trainer.reference
    expected = {name: value.clone() for name, value in reference.weights().items()}
    seen = []
    follow = reference.__class__.follow

    def watched(self: Any, policy: Any, mix: float) -> None:
        now = dict(policy.named_parameters())
        for name in expected:
            expected[name] = 0.25 * now[name].detach() + 0.75 * expected[name]
        seen.append(trainer.state.global_step)
        follow(self, policy, mix)

    reference.__class__.follow = watched
    try:
        trainer.train()
    finally:
        reference.__class__.follow = follow
    assert seen == [2, 4]
    for name, value in reference.weights().items():
        torch.testing.assert_close(value, expected[name])
    moved = [name for name, p in trainer.model.named_parameters() if p.requires_grad]
    assert moved
    assert all(
        not torch.equal(reference.weights()[name], dict(trainer.model.named_parameters())[name]) for name in moved
    )


@pytest.mark.parametrize("adapter", [None, ADAPTER], ids=["full", "adapter"])
def test_at_mix_one_the_reference_becomes_the_policy(tmp_path: Path, adapter: dict[str, Any] | None) -> None:
    """Loss log 2 in the step after each move, whatever was learned before."""
    trainer = built(tmp_path, adapter, {"every": 2, "mix": 1.0}, logging_steps=1).trainer
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    log2 = pytest.approx(0.693147, abs=1e-5)
    assert losses[0] == losses[2] == losses[4] == log2
    assert losses[1] != log2
    assert losses[3] != log2


@pytest.mark.parametrize("adapter", [None, ADAPTER], ids=["full", "adapter"])
def test_a_resumed_run_has_the_reference_where_it_stood(tmp_path: Path, adapter: dict[str, Any] | None) -> None:
    model = {"name_or_path": str(tmp_path / "model"), "adapter": adapter}
    sync = {"every": 2, "mix": 0.5}

    def cut(name: str, steps: int, **how: bool) -> None:
        saving = {"save_strategy": "steps", "save_steps": 3, "max_steps": steps, "output_dir": str(tmp_path / name)}
        train(recipe(tmp_path, model=model, reference={"sync": sync}, training=TRAINING | saving), **how)

    cut("whole", 5)
    cut("cut", 3)
    cut("cut", 5, resume=True)
    assert_same_weights(tmp_path / "cut", tmp_path / "whole")
    ours, theirs = ([line["loss"] for line in training(tmp_path / name)] for name in ("cut", "whole"))
    assert ours == pytest.approx(theirs, rel=1e-5)
    sync["every"] = 3
    with pytest.raises(ConfigError, match="was written with another sync"):
        cut("cut", 5, resume=True)


def test_what_cannot_move_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="moves the reference, and a cache holds what it said before"):
        recipe(tmp_path, reference={"sync": {"every": 2}, "cache": "here"})
    with pytest.raises(ConfigError, match="has no counterpart in another model"):
        recipe(
            tmp_path,
            model={"name_or_path": str(tmp_path / "model"), "adapter": ADAPTER},
            reference={"sync": {"every": 2}, "source": "model", "name_or_path": str(tmp_path / "model")},
        )


def test_the_plan_says_how_it_moves(tmp_path: Path) -> None:
    plan = built(tmp_path, None, {"every": 512}).plan
    assert plan["reference"]["moves"] == "every 512 steps, 0.6 of the way to the policy"


def test_batches_by_tokens_in_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    training = {"num_train_epochs": 2, "max_steps": -1, "per_device_train_batch_size": None}
    found = recipe(tmp_path, scoring={"tokens_per_batch": 64}, training=training)
    path.write_text(found.resolved())
    result = train(load_recipe(path))
    assert "per device, of 64 tokens" in result.plan["rows per step"]
    assert result.plan["padding"].endswith("of the computed positions")
    assert result.training["padding"] == 0.0, "packed rows have none"
    with pytest.raises(ConfigError, match=r"scoring.tokens_per_batch decides how many rows a batch has"):
        recipe(tmp_path, scoring={"tokens_per_batch": 64}, training={"per_device_train_batch_size": 4})
    with pytest.raises(ConfigError, match=r"'dr_dpo' compares the prompts of a batch, and with scoring"):
        train(load_recipe(path, ["loss={name: dr_dpo}", "training.output_dir=other"]))


def test_a_reference_that_will_never_move_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train(recipe(tmp_path, reference={"sync": {"every": 5}}))
    assert "reference.sync.every is 5 and training has 4 steps: the reference will never move" in caplog.text
