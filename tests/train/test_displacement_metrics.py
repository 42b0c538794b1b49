"""Displacement and the pull of the loss, as they ride along in training: exact over rows, micro-batches and sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from prefopt import PreferenceTrainer, get_loss
from prefopt.diagnostics import gradient_coefficients
from prefopt.losses import Loss, Objective
from prefopt.scores import Scores
from prefopt.scoring import Scorer
from prefopt.scoring.reference import ModelReference, freeze
from prefopt.train.metrics import MetricSums, add_sides, means
from prefopt.train.step import preference_step, slopes_of
from tests.train.tiny import arguments, history, tiny_model, tiny_rows

SIDES = ("chosen", "rejected")


def run(folder: Path, rows: list[dict[str, Any]], loss: Loss, **changes: Any) -> PreferenceTrainer:
    """One epoch of SGD against another model, so that policy and reference differ from the first step on."""
    coupling = changes.pop("coupling", "micro")
    settings = {"num_train_epochs": 1, "max_steps": -1, "optim": "sgd", "learning_rate": 1e-3} | changes
    trainer = PreferenceTrainer(
        tiny_model(),
        arguments(folder, **settings),
        objective=loss,
        train_dataset=rows,
        reference=ModelReference(freeze(tiny_model(seed=1)), Scorer()),
        coupling=coupling,
    )
    trainer.train()
    return trainer


def scored(trainer: PreferenceTrainer, rows: list[dict[str, Any]]) -> Scores:
    """The rows under the model before training."""
    batch = trainer.collator([{**row, "index": n} for n, row in enumerate(rows)])
    step = preference_step(tiny_model(), batch, trainer.objective, scorer=trainer.scorer, reference=trainer.reference)
    return step.scores


@pytest.mark.parametrize("name", ["dpo", "dpop", "ipo", "simpo", "ld_dpo"])
def test_the_first_step_logs_the_coefficients_of_its_rows(name: str, tmp_path: Path) -> None:
    rows = tiny_rows(6)
    trainer = run(tmp_path, rows, get_loss(name), per_device_train_batch_size=6)
    expected = gradient_coefficients(trainer.objective, scored(trainer, rows))
    for side in SIDES:
        (found,) = history(trainer, f"coefficients/{side}")
        assert found == pytest.approx(float(getattr(expected, side).mean()), rel=1e-4)
        assert found != 0


def test_an_nll_term_lowers_the_share_of_the_rejected_side(tmp_path: Path) -> None:
    rows = tiny_rows(6)
    plain = run(tmp_path, rows, get_loss("dpo"), per_device_train_batch_size=6)
    both = Objective.of(get_loss("dpo"), get_loss("nll"), weights=[1.0, 0.5])
    held = run(tmp_path, rows, both, per_device_train_batch_size=6)  # type: ignore[arg-type]
    assert history(held, "coefficients/rejected") == pytest.approx(history(plain, "coefficients/rejected"), rel=1e-4)
    lengths = torch.tensor([len(row["responses"][0]) for row in rows], dtype=torch.float64)
    gain = history(held, "coefficients/chosen")[0] - history(plain, "coefficients/chosen")[0]
    assert gain == pytest.approx(0.5 * float((1 / lengths).mean()), rel=1e-4), "an NLL per token pulls by 1 / length"


def test_movement_has_three_normalisations_that_are_those_of_all_rows(tmp_path: Path) -> None:
    rows = tiny_rows(7)
    trainer = run(tmp_path, rows, get_loss("dpo"), per_device_train_batch_size=2, gradient_accumulation_steps=4)
    scores = scored(trainer, rows)
    for number, side in enumerate(SIDES):
        moved, tokens = scores.logratios[:, number].double(), scores.lengths[:, number].double()
        name = f"displacement/{side}_delta"
        assert history(trainer, name) == [pytest.approx(float(moved.mean()), rel=1e-4)]
        assert history(trainer, f"{name}_per_token") == [pytest.approx(float(moved.sum() / tokens.sum()), rel=1e-4)]
        assert history(trainer, f"{name}_mean_per_token") == [pytest.approx(float((moved / tokens).mean()), rel=1e-4)]
    fell = scores.logratios < 0
    assert history(trainer, "displacement/chosen_dropped") == [pytest.approx(float(fell[:, 0].float().mean()))]
    assert history(trainer, "displacement/both_dropped") == [pytest.approx(float(fell.all(-1).float().mean()))]


@pytest.mark.parametrize("cut", [(4, 2), (1, 8)])
def test_neither_depends_on_how_the_step_is_cut(cut: tuple[int, int], tmp_path: Path) -> None:
    rows, (size, times) = tiny_rows(8), cut
    names = [f"coefficients/{side}" for side in SIDES] + [f"displacement/{side}_delta_per_token" for side in SIDES]
    whole = run(tmp_path, rows, get_loss("dpo"), per_device_train_batch_size=8)
    parts = run(tmp_path, rows, get_loss("dpo"), per_device_train_batch_size=size, gradient_accumulation_steps=times)
    for name in names:
        assert history(parts, name) == pytest.approx(history(whole, name), rel=1e-5)


@pytest.mark.parametrize("name", ["dr_dpo", "aot"])
def test_a_window_of_the_step_logs_what_one_batch_logs(name: str, tmp_path: Path) -> None:
    rows = tiny_rows(8)
    whole = run(tmp_path, rows, get_loss(name), per_device_train_batch_size=8)
    window = run(
        tmp_path, rows, get_loss(name), per_device_train_batch_size=2, gradient_accumulation_steps=4, coupling="step"
    )
    for name in [f"coefficients/{side}" for side in SIDES] + ["displacement/chosen_delta", "loss"]:
        assert history(window, name) == pytest.approx(history(whole, name), rel=1e-4)


def test_desirable_responses_are_the_chosen_ones_and_undesirable_the_rejected(tmp_path: Path) -> None:
    rows = [{**row, "label": number % 3 == 0} for number, row in enumerate(tiny_rows(9, responses=1))]
    trainer = run(tmp_path, rows, get_loss("bco"), per_device_train_batch_size=3)
    scores = scored(trainer, rows)
    label = torch.tensor([row["label"] for row in rows])
    (first, *_), (other, *_) = (history(trainer, f"logps/{side}") for side in SIDES)
    assert first != other
    sums = MetricSums()
    add_sides(sums, scores, torch.ones(9))
    found = means(sums.drain(lambda x: x))
    moved = scores.logratios[:, 0]
    assert found["displacement/chosen_delta"] == pytest.approx(float(moved[label].mean()), rel=1e-5)
    assert found["displacement/rejected_delta"] == pytest.approx(float(moved[~label].mean()), rel=1e-5)
    assert found["displacement/chosen_dropped"] == pytest.approx(float((moved[label] < 0).float().mean()))
    assert "displacement/both_dropped" not in history_names(trainer), "single responses have no pairs"
    assert history(trainer, "coefficients/chosen")[0] > 0
    assert history(trainer, "coefficients/rejected")[0] > 0


def test_the_rejected_side_is_the_mean_of_those_responses_that_exist() -> None:
    policy = torch.tensor([[[-1.0, -1.0], [-3.0, 0.0], [-2.0, -2.0]], [[-1.0, 0.0], [-2.0, 0.0], [0.0, 0.0]]])
    mask = torch.tensor([[[1, 1], [1, 0], [1, 1]], [[1, 0], [1, 0], [0, 0]]]).bool()
    sums = MetricSums()
    scores = Scores(policy=policy, reference=torch.zeros_like(policy), mask=mask)
    add_sides(sums, scores, torch.ones(2), slopes=torch.full_like(policy, 0.5))
    found = means(sums.drain(lambda x: x))
    assert found["displacement/rejected_delta"] == pytest.approx((-3.5 - 2) / 2)
    assert found["displacement/rejected_delta_per_token"] == pytest.approx(-9 / 4)
    assert found["displacement/rejected_delta_mean_per_token"] == pytest.approx(((-3 - 2) / 2 - 2) / 2)
    assert (found["coefficients/chosen"], found["coefficients/rejected"]) == (-0.5, 0.5)


def test_a_filler_counts_for_nothing() -> None:
    policy = torch.tensor([[[-1.0], [-3.0]], [[-50.0], [-60.0]]])
    scores = Scores(policy=policy, reference=torch.zeros_like(policy), mask=torch.ones_like(policy, dtype=torch.bool))
    sums = MetricSums()
    add_sides(sums, scores, torch.tensor([1.0, 0.0]), slopes=torch.ones_like(policy))
    found = means(sums.drain(lambda x: x))
    assert found["displacement/chosen_delta"] == found["displacement/chosen_delta_per_token"] == -1
    assert found["coefficients/rejected"] == 1


def test_without_a_reference_nothing_is_said_to_have_moved(tmp_path: Path) -> None:
    trainer = PreferenceTrainer(
        tiny_model(), arguments(tmp_path, max_steps=1), objective=get_loss("simpo"), train_dataset=tiny_rows(4)
    )
    trainer.train()
    names = history_names(trainer)
    assert not [name for name in names if name.startswith("displacement/")]
    assert {"logps/chosen", "logps/rejected", "coefficients/chosen", "coefficients/rejected"} <= names


def test_evaluation_keeps_no_gradient_and_reports_no_pull(tmp_path: Path) -> None:
    trainer = run(tmp_path, tiny_rows(4), get_loss("dpo"))
    found = trainer.evaluate(tiny_rows(4))
    assert "eval_displacement/chosen_delta" in found
    assert not [name for name in found if "coefficients" in name]
    with torch.no_grad():
        batch = trainer.collator([{**row, "index": 0} for row in tiny_rows(2)])
        step = preference_step(
            trainer.model, batch, trainer.objective, scorer=trainer.scorer, reference=trainer.reference
        )
    assert slopes_of(step) is None


def history_names(trainer: PreferenceTrainer) -> set[str]:
    """Names of everything that was logged."""
    return {name for line in trainer.state.log_history for name in line}
