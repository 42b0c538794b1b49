"""Training with losses that compare prompts: windows, state, evaluation."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from prefopt import ConfigError, PreferenceTrainer, get_loss, train
from prefopt.losses import Objective
from prefopt.train.refusals import check_window
from tests.train.folder import model_folder, recipe
from tests.train.test_run import SAVING, assert_same_weights
from tests.train.tiny import arguments, flat, history, tiny_model, tiny_rows


def trainer(folder: Path, loss: Any, *, coupling: Any = "micro", rows: int = 8, **changes: Any) -> PreferenceTrainer:
    return PreferenceTrainer(
        tiny_model(),
        arguments(folder, **changes),
        objective=loss,
        train_dataset=tiny_rows(rows),
        eval_dataset=tiny_rows(6, seed=1),
        coupling=coupling,
    )


@pytest.mark.parametrize("name", ["dr_dpo", "beta_dpo", "aot", "aot_unpaired", "kto"])
def test_a_window_of_one_prompt_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        trainer(tmp_path, get_loss(name), per_device_train_batch_size=1, gradient_accumulation_steps=4)
    assert str(error.value) == (
        f"loss '{name}' compares prompts with one another, and training.per_device_train_batch_size 1 on 1 process(es) "
        "shows it 1 at a time: it would silently be no more than its plain relative. Raise the batch, set "
        "scoring.coupling: step to compare the 4 prompts of a step, or choose another loss."
    )


def test_the_refusal_comes_before_a_model_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recipe(tmp_path, {"training.per_device_train_batch_size": 1}, loss={"name": "dr_dpo"})
    monkeypatch.setattr("prefopt.train.build.load_policy", lambda *_: pytest.fail("a model was loaded"))
    with pytest.raises(ConfigError, match="loss 'dr_dpo' compares prompts with one another"):
        train(asked)


def test_a_narrow_window_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        trainer(tmp_path, get_loss("dr_dpo"), per_device_train_batch_size=4)
    assert "loss 'dr_dpo' compares only 4 prompts with one another" in caplog.text


@pytest.mark.parametrize("options", [{"coupling": "step", "tokens_per_batch": 32}, {"per_device_train_batch_size": 3}])
def test_a_step_with_too_few_prompts_is_said_once(
    options: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With batches by tokens, or where an epoch ends, the number of prompts is only known in the step itself."""
    tokens, coupling = options.pop("tokens_per_batch", None), options.pop("coupling", "micro")
    run = PreferenceTrainer(
        tiny_model(),
        arguments(tmp_path, max_steps=9, **options),
        objective=get_loss("dr_dpo"),
        train_dataset=tiny_rows(7),
        coupling=coupling,
        tokens_per_batch=tokens,
    )
    with caplog.at_level(logging.WARNING):
        run.train()
    assert caplog.text.count("shows loss 'dr_dpo' 1 prompt(s), fewer than it can compare") == 1


def test_a_window_of_the_step_needs_a_model_that_says_the_same_twice(tmp_path: Path) -> None:
    model = get_peft_model(tiny_model(), LoraConfig(task_type="CAUSAL_LM", r=2, lora_dropout=0.1))
    options: dict[str, Any] = {"objective": get_loss("dr_dpo"), "train_dataset": tiny_rows(4)}
    with pytest.raises(ConfigError, match=r"scores each prompt twice, and the dropout in .*lora_dropout.* would make"):
        PreferenceTrainer(model, arguments(tmp_path), coupling="step", **options)


def test_micro_batches_by_themselves_train_differently(tmp_path: Path) -> None:
    """Which is why there is a window of the step; the plain loss does not care."""
    results = {}
    for name in ("dpo", "dr_dpo"):
        loss = get_loss("dr_dpo", beta=1.0, beta_prime=0.1) if name == "dr_dpo" else get_loss("dpo", beta=1.0)
        one = trainer(tmp_path / "one", loss, per_device_train_batch_size=8, learning_rate=1e-3)
        cut = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
        many = trainer(tmp_path / "many", loss, **cut, learning_rate=1e-3)
        for run in (one, many):
            run.train()
        results[name] = float((flat(one.model) - flat(many.model)).abs().max())
    assert results["dr_dpo"] > 20 * results["dpo"]


@pytest.mark.parametrize("name", ["beta_dpo", "bco_pair", "dr_dpo", "sampo"])
def test_evaluation_does_not_move_training(name: str, tmp_path: Path) -> None:
    alone = trainer(tmp_path / "alone", get_loss(name), per_device_train_batch_size=2, learning_rate=1e-3)
    watched = trainer(
        tmp_path / "watched",
        get_loss(name),
        per_device_train_batch_size=2,
        learning_rate=1e-3,
        eval_strategy="steps",
        eval_steps=1,
    )
    for run in (alone, watched):
        run.train()
    assert torch.equal(flat(alone.model), flat(watched.model))
    assert alone.objective.dump_state(alone.loss_state) == watched.objective.dump_state(watched.loss_state)


@pytest.mark.parametrize("name", ["beta_dpo", "bco_pair", "dr_dpo", "sampo", "aot"])
def test_evaluation_does_not_depend_on_its_batch_size(name: str, tmp_path: Path) -> None:
    found = []
    for size in (1, 4):
        run = trainer(tmp_path / str(size), get_loss(name), per_device_eval_batch_size=size, learning_rate=1e-3)
        run.train()
        found.append(run.evaluate()["eval_loss"])
    assert found[0] == pytest.approx(found[1], rel=1e-6)


@pytest.mark.parametrize("coupling", ["micro", "step"])
@pytest.mark.parametrize("name", ["beta_dpo", "bco_pair", "kto", "bco"])
def test_the_state_is_resumed_bit_for_bit(name: str, coupling: str, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    training = {**SAVING, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    sections = {"loss": {"name": name, "beta": 0.5}, "scoring": {"coupling": coupling}, "training": training}
    for folder in (whole, cut):
        folder.mkdir()
        model_folder(folder / "model")
        train(recipe(folder, **sections))
    shutil.rmtree(cut / "run" / "checkpoint-6")
    (cut / "run" / "model.safetensors").unlink()
    train(recipe(cut, **sections), resume=True)
    assert_same_weights(cut / "run", whole / "run")


def test_labels_that_are_all_alike_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"prompt": f"{n} + 1 =", "completion": f" {n + 1}", "label": True} for n in range(8)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with caplog.at_level(logging.WARNING):
        train(recipe(tmp_path, loss={"name": "kto"}, training={"max_steps": 1}))
    assert "all 8 rows are labelled desirable: loss 'kto' has nothing to tell them from" in caplog.text


def test_a_resume_with_another_window_is_refused(tmp_path: Path) -> None:
    training = {**SAVING, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    train(recipe(tmp_path, loss={"name": "dr_dpo"}, training=training))
    other = {**training, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}
    with pytest.raises(ConfigError, match="was written with another schedule"):
        train(recipe(tmp_path, loss={"name": "dr_dpo"}, training=other), resume=True)


def test_losses_of_a_sum_keep_their_states_apart(tmp_path: Path) -> None:
    both = Objective.of(get_loss("beta_dpo"), get_loss("bco_pair"), get_loss("dpo"))
    run = trainer(tmp_path, both, max_steps=3)
    run.train()
    assert run.loss_state is not None
    assert run.loss_state.keys() == {"beta_dpo", "bco_pair"}
    assert run.loss_state["bco_pair"].count == 3
    again = both.load_state(both.dump_state(run.loss_state))
    assert torch.equal(again["beta_dpo"].gap_mean, run.loss_state["beta_dpo"].gap_mean)
    assert again["beta_dpo"].gap_mean.dtype == run.loss_state["beta_dpo"].gap_mean.dtype


def test_the_metrics_of_a_window_are_those_of_its_rows(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"learning_rate": 1e-3, "rows": 11}
    one = trainer(tmp_path / "one", get_loss("dr_dpo"), per_device_train_batch_size=4, **shared)
    cut = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "coupling": "step"}
    many = trainer(tmp_path / "many", get_loss("dr_dpo"), **cut, **shared)
    for run in (one, many):
        run.train()
    for name in (
        "loss",
        "dr_dpo/effective_share",
        "rewards/margins",
        "logps/chosen",
        "num_tokens",
        "displacement/chosen_delta",
    ):
        assert history(many, name) == pytest.approx(history(one, name), rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("name", ["tdpo1", "tdpo2"])
def test_losses_that_compare_distributions_train(name: str, tmp_path: Path) -> None:
    run = trainer(tmp_path, get_loss(name, beta=0.5), learning_rate=1e-3, max_steps=8, per_device_train_batch_size=8)
    run.train()
    losses = history(run)
    assert losses[0] == pytest.approx(0.6931, abs=1e-3)
    assert losses[-1] < losses[0] - 0.01


def test_a_weighted_loss_trains_and_logs_its_weight(tmp_path: Path) -> None:
    run = trainer(tmp_path, get_loss("dpo", modify=["wpo"]), learning_rate=1e-3)
    run.train()
    assert all(0 < weight <= 1 for weight in history(run, "wpo/weight"))
    assert history(run)[0] == pytest.approx(0.6931 * history(run, "wpo/weight")[0], rel=0.05)


def test_kto_measures_drift_on_other_prompts_and_only_in_training(tmp_path: Path) -> None:
    rows = [{**row, "label": number % 2 == 0} for number, row in enumerate(tiny_rows(8, responses=1))]
    run = PreferenceTrainer(
        tiny_model(),
        arguments(tmp_path, learning_rate=3e-3, max_steps=6),
        objective=get_loss("kto", beta=0.5),
        train_dataset=rows,
        eval_dataset=rows[:5],
    )
    run.train()
    assert run.loss_state is not None
    kl = history(run, "kto/kl")
    assert kl[0] == 0
    assert history(run, "kto/signed_reward")[-1] > 0
    assert run.evaluate()["eval_kto/kl"] == pytest.approx(float(run.loss_state["kto"].kl), abs=1e-6)
    batch = next(iter(run.get_train_dataloader()))
    own, other = batch["input_ids"], batch["mismatched_input_ids"]
    for number, length in enumerate(batch["prompt_lengths"].tolist()):
        assert torch.equal(own[number, 0, :length], other[number, 0, :length])
        count = int(batch["mismatched_mask"][number, 0].sum())
        response = other[number, 0, length : length + count].tolist()
        others = [r["responses"][0] for r in rows if r["prompt_ids"] != own[number, 0, :length].tolist()]
        assert any(whole[:count] == response for whole in others)


def test_a_window_of_each_rank_is_counted_for_each_rank(tmp_path: Path) -> None:
    args = arguments(tmp_path, per_device_train_batch_size=1)
    two = type("TwoRanks", (), {"world_size": 2, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 1})
    check_window(Objective.of(get_loss("dr_dpo")), two, "micro")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="on 2 process\\(es\\) shows it 1 at a time"):
        check_window(Objective.of(get_loss("dr_dpo", scope="local")), two, "micro")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="loss 'irpo' compares prompts"):
        check_window(Objective.of(get_loss("irpo", nll_norm="batch_tokens")), args, "micro")
    check_window(Objective.of(get_loss("irpo")), args, "micro")


def test_a_column_that_only_some_rows_have_does_not_break_a_window(tmp_path: Path) -> None:
    rows = [{**row, "external": [1.0, 0.0]} if n % 2 else row for n, row in enumerate(tiny_rows(8))]
    options: dict[str, Any] = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4, "max_steps": 2}
    run = PreferenceTrainer(
        tiny_model(),
        arguments(tmp_path, **options),
        objective=get_loss("dr_dpo"),
        train_dataset=rows,
        coupling="step",
    )
    run.train()
    assert history(run, "dr_dpo/effective_share")[0] == pytest.approx(1, abs=1e-3)
