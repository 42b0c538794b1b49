"""Training arithmetic: how the batch is cut must not matter, metrics are exact, and nothing goes wrong in silence."""

from __future__ import annotations

import copy
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM

from prefopt import ConfigError, PreferenceTrainer, RunError, get_loss
from prefopt.losses import Objective
from prefopt.scores import Scores
from prefopt.train.metrics import MetricSums, means, pair_metrics
from prefopt.train.step import preference_step
from tests.train.tiny import arguments, bad_row_model, flat, history, rows_of_which_one_holds, tiny_model, tiny_rows


def trained(
    folder: Path, rows: list[dict[str, Any]], *, model: Any = None, loss: Any = None, **changes: Any
) -> PreferenceTrainer:
    trainer = PreferenceTrainer(
        copy.deepcopy(model) if model is not None else tiny_model(),
        arguments(folder, **changes),
        objective=loss or get_loss("dpo"),
        train_dataset=rows,
    )
    trainer.train()
    return trainer


def test_a_mixture_of_experts_trains_the_preference_loss_alone_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    experts = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    runs = []
    for asks in (False, True):
        torch.manual_seed(0)
        model = MixtralForCausalLM(MixtralConfig(**sizes, **experts, output_router_logits=asks))
        caplog.clear()
        runs.append(trained(tmp_path, tiny_rows(8), model=model))
        assert ("output_router_logits: true, for an auxiliary loss" in caplog.text) == asks
        assert runs[-1].scorer.settled(runs[-1].model) == "packed"
    assert history(runs[0]) == history(runs[1])
    assert torch.equal(flat(runs[0].model), flat(runs[1].model))


# how the batch is cut


@pytest.mark.parametrize("loss", ["dpo", "ipo", "simpo", "nll"])
def test_six_pairs_give_one_update_however_they_are_cut(loss: str, tmp_path: Path) -> None:
    """As 6, as 4 + 2, and as 1 x 6. Plain SGD, so that a difference is not hidden by a normalised step."""
    rows = tiny_rows(6)
    cuts = [(6, 1), (4, 2), (1, 6)]
    options = {"num_train_epochs": 1, "max_steps": -1, "optim": "sgd", "learning_rate": 0.1}
    runs = [
        trained(
            tmp_path,
            rows,
            loss=get_loss(loss),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=times,
            **options,
        )
        for size, times in cuts
    ]
    assert [run.state.global_step for run in runs] == [1, 1, 1]
    start = flat(tiny_model())
    assert (flat(runs[0].model) - start).norm() > 1e-3
    for run in runs[1:]:
        assert history(run) == pytest.approx(history(runs[0]), rel=1e-5)
        assert history(run, "logps/chosen") == pytest.approx(history(runs[0], "logps/chosen"), rel=1e-5)
        torch.testing.assert_close(flat(run.model), flat(runs[0].model), rtol=1e-5, atol=1e-6)


def test_the_update_is_the_gradient_of_the_mean_over_rows(tmp_path: Path) -> None:
    """Against a hand-written step: SGD moves by rate times the gradient of the mean loss."""
    rows, start = tiny_rows(6), tiny_model()
    run = trained(
        tmp_path,
        rows,
        num_train_epochs=1,
        max_steps=-1,
        optim="sgd",
        learning_rate=0.1,
        max_grad_norm=0,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
    )
    batch = run.collator(rows)
    step = preference_step(start, batch, run.objective, scorer=run.scorer, reference=run.reference)
    step.out.losses.mean().backward()
    expected = torch.cat([(p - 0.1 * p.grad).detach().double().flatten() for p in start.parameters()])
    torch.testing.assert_close(flat(run.model), expected, rtol=1e-5, atol=1e-7)


def test_each_epoch_has_its_own_order_and_sees_every_row_once(tmp_path: Path) -> None:
    run = PreferenceTrainer(tiny_model(), arguments(tmp_path), objective=get_loss("dpo"), train_dataset=tiny_rows(10))
    loader = run.get_train_dataloader()
    orders = []
    for epoch in (0, 1, 0):
        loader.set_epoch(epoch)
        orders.append([int(i) for batch in loader for i in batch["ids"]])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(10))
    assert orders[0] != orders[1]
    assert orders[0] == orders[2]


# metrics


def evaluated(run: PreferenceTrainer, size: int) -> dict[str, float]:
    run.args.per_device_eval_batch_size = size
    return {k: v for k, v in run.evaluate().items() if not k.endswith(("runtime", "per_second"))}


def test_evaluation_does_not_depend_on_batch_size_and_each_set_has_its_own_names(tmp_path: Path) -> None:
    """Case 17."""
    data = tiny_rows(20)
    run = PreferenceTrainer(
        tiny_model(),
        arguments(tmp_path, learning_rate=1e-3),
        objective=get_loss("dpo"),
        train_dataset=data[:12],
        eval_dataset={"a": data[12:17], "b": data[17:]},
    )
    run.train()
    first = evaluated(run, 1)
    assert {"eval_a_rewards/accuracies", "eval_b_rewards/accuracies", "eval_a_loss", "eval_b_loss"} <= first.keys()
    assert first["eval_a_logps/chosen"] != first["eval_b_logps/chosen"]
    for size in (2, 3, 5):
        assert evaluated(run, size) == pytest.approx(first, rel=1e-5, abs=1e-6)


def test_evaluation_can_choose_the_best_checkpoint_by_a_named_set(tmp_path: Path) -> None:
    data = tiny_rows(12)
    args = arguments(
        tmp_path,
        max_steps=2,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_a_rewards/margins",
        greater_is_better=True,
    )
    run = PreferenceTrainer(
        tiny_model(), args, objective=get_loss("dpo"), train_dataset=data, eval_dataset={"a": data[:5]}
    )
    run.train()
    assert run.state.best_metric == max(
        line["eval_a_rewards/margins"] for line in run.state.log_history if "eval_a_loss" in line
    )


def test_margins_plus_plus_minus_are_two_thirds_and_a_tie_is_apart() -> None:
    """The hand case: a mean of batch means would say 1/2."""
    sums = MetricSums()
    weight = torch.ones(2)
    sums.add({"accuracy": torch.tensor([1.0, 1.0])}, weight)
    sums.add({"accuracy": torch.tensor([0.0, math.nan])}, torch.tensor([1.0, 0.0]))
    assert means(sums.drain(lambda x: x)) == {"accuracy": pytest.approx(2 / 3)}

    policy = torch.tensor([[[2.0], [1.0]], [[2.0], [1.0]], [[1.0], [2.0]], [[1.0], [1.0]]])
    scores = Scores(policy=policy, reference=torch.zeros_like(policy), mask=torch.ones_like(policy, dtype=torch.bool))
    found = pair_metrics(get_loss("dpo")(scores), scores)
    assert found["rewards/ties"].mean() == 1 / 4
    assert found["rewards/accuracies"].tolist() == [1, 1, 0, 0]


def test_parts_of_a_sum_are_logged_on_their_own(tmp_path: Path) -> None:
    both = Objective.of(get_loss("dpo"), get_loss("nll"), weights=[1.0, 0.2])
    run = trained(tmp_path, tiny_rows(8), loss=both, max_steps=2)
    for total, dpo, nll in zip(history(run), history(run, "loss/dpo"), history(run, "loss/nll"), strict=True):
        assert total == pytest.approx(dpo + 0.2 * nll, rel=1e-5)


# numbers that are not numbers


def with_nan_for_one_token(token: int) -> Any:
    model = tiny_model()
    with torch.no_grad():
        model.get_input_embeddings().weight[token] = math.nan
    return model


def bad_trainer(tmp_path: Path, **options: Any) -> PreferenceTrainer:
    model = bad_row_model()
    reference = PreferenceTrainer(
        tiny_model(), arguments(tmp_path), objective=get_loss("dpo"), train_dataset=tiny_rows(2)
    ).reference
    return PreferenceTrainer(
        model,
        arguments(tmp_path, max_steps=2, per_device_train_batch_size=8),
        objective=get_loss("dpo"),
        reference=reference,
        train_dataset=rows_of_which_one_holds(96),
        **options,
    )


def test_a_nan_stops_before_the_optimizer_moves_and_names_the_row(tmp_path: Path) -> None:
    """Case 21."""
    run = bad_trainer(tmp_path)
    before = flat(run.model)
    with pytest.raises(RunError) as error:
        run.train()
    text = str(error.value)
    assert "policy log-probabilities are not finite (torch.float32)" in text
    assert "rejected" in text
    assert "Rows: row-3." in text
    assert "The optimizer has not moved" in text
    assert "safety.nonfinite: skip" in text
    assert torch.equal(flat(run.model), before)


def test_skip_leaves_the_row_out_and_counts_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = bad_trainer(tmp_path, nonfinite="skip")
    with caplog.at_level(logging.WARNING):
        run.train()
    assert history(run, "skipped_rows") == [1, 1]
    assert all(math.isfinite(loss) for loss in history(run))
    assert "Rows: row-3. Left out." in caplog.text


def test_a_step_whose_every_row_is_left_out_shows_no_loss(tmp_path: Path) -> None:
    run = bad_trainer(tmp_path, nonfinite="skip")
    run.train_dataset = [run.train_dataset[3]]
    run._named_rows = run.train_dataset
    with pytest.raises(RunError, match="the gradient is exactly 0"):
        run.train()
    run.sums["train"].add_total("skipped", torch.ones(()), torch.ones(()))
    logs = {"loss": 0.0}
    run.log(logs)
    assert "loss" not in logs
    assert logs["skipped_rows"] >= 1


def test_a_nan_weight_is_named_and_never_skipped(tmp_path: Path) -> None:
    run = PreferenceTrainer(
        with_nan_for_one_token(5),
        arguments(tmp_path),
        objective=get_loss("simpo"),
        train_dataset=rows_of_which_one_holds(96),
        nonfinite="skip",
    )
    with pytest.raises(RunError, match=r"The weights themselves are not finite, first 'model.embed_tokens.weight'"):
        run.train()


# what goes nowhere


def test_nothing_trainable_is_refused(tmp_path: Path) -> None:
    model = tiny_model().requires_grad_(False)
    with pytest.raises(ConfigError, match="no parameter is trainable"):
        PreferenceTrainer(model, arguments(tmp_path), objective=get_loss("dpo"), train_dataset=tiny_rows(2))


def test_several_devices_in_one_process_are_refused(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    args._n_gpu = 2
    with pytest.raises(ConfigError, match=r"2 devices are visible to one process.*accelerate launch --num_processes 2"):
        PreferenceTrainer(tiny_model(), args, objective=get_loss("dpo"), train_dataset=tiny_rows(2))


def test_a_gradient_of_exactly_zero_is_refused(tmp_path: Path) -> None:
    model = tiny_model()
    for parameter in model.parameters():
        parameter.register_hook(torch.zeros_like)
    run = PreferenceTrainer(model, arguments(tmp_path), objective=get_loss("dpo"), train_dataset=tiny_rows(4))
    with pytest.raises(RunError, match="the gradient is exactly 0, so nothing would be learned"):
        run.train()


def test_a_gradient_that_is_not_finite_stops_before_the_optimizer_moves(tmp_path: Path) -> None:
    model = tiny_model()
    model.lm_head.weight.register_hook(lambda gradient: gradient * math.inf)
    run = PreferenceTrainer(model, arguments(tmp_path), objective=get_loss("dpo"), train_dataset=tiny_rows(4))
    before = flat(run.model)
    with pytest.raises(RunError, match="the gradient is not finite although the loss is"):
        run.train()
    assert torch.equal(flat(run.model), before)


def test_bfloat16_weights_that_do_not_move_are_said_and_then_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(RunError, match="still equals the reference in every log-probability"),
    ):
        trained(tmp_path, tiny_rows(8), model=tiny_model(dtype=torch.bfloat16), learning_rate=1e-9, max_steps=8)
    assert "rounds small updates away" in caplog.text


def test_the_share_of_half_precision_weights_that_moved_is_logged(tmp_path: Path) -> None:
    slow = trained(tmp_path, tiny_rows(8), model=tiny_model(dtype=torch.bfloat16), learning_rate=1e-5, max_steps=2)
    fast = trained(tmp_path, tiny_rows(8), model=tiny_model(dtype=torch.bfloat16), learning_rate=1e-2, max_steps=2)
    assert 0 <= history(slow, "weights/moved")[0] < 0.5 < history(fast, "weights/moved")[0] <= 1
    assert not history(trained(tmp_path, tiny_rows(8), max_steps=1), "weights/moved")


def test_a_loss_that_stays_at_log_2_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        trained(tmp_path, tiny_rows(8), learning_rate=1e-8, max_steps=25)
    assert caplog.text.count("the loss is still log 2 to four digits") == 1


def test_no_second_model_is_made_when_no_loss_needs_a_reference(tmp_path: Path) -> None:
    for name in ("simpo", "nll"):
        run = PreferenceTrainer(tiny_model(), arguments(tmp_path), objective=get_loss(name), train_dataset=tiny_rows(4))
        assert run.reference.describe() == {"kind": "none"}


def test_a_row_without_a_rejected_response_counts_in_no_pair_metric(tmp_path: Path) -> None:
    rows = tiny_rows(9)
    rows[4] = {**rows[4], "responses": rows[4]["responses"][:1], "masks": rows[4]["masks"][:1]}
    found = []
    for size in (1, 3, 9):
        run = PreferenceTrainer(
            tiny_model(seed=1),
            arguments(tmp_path, per_device_eval_batch_size=size),
            objective=get_loss("nll"),
            train_dataset=rows,
            eval_dataset=rows,
        )
        found.append(run.evaluate()["eval_rewards/accuracies"])
    assert found == pytest.approx([found[0]] * 3)
    assert found[0] * 8 == pytest.approx(round(found[0] * 8)), "eight rows have a rejected response"


def test_a_batch_that_is_never_full_is_refused_and_so_is_an_empty_set(tmp_path: Path) -> None:
    args = arguments(tmp_path, dataloader_drop_last=True, per_device_train_batch_size=64)
    run = PreferenceTrainer(tiny_model(), args, objective="dpo", train_dataset=tiny_rows(5), eval_dataset=tiny_rows(3))
    with pytest.raises(ConfigError, match="5 rows do not fill one batch of 64 per device"):
        run.train()
    with pytest.raises(ConfigError, match="there are no rows to evaluate on"):
        run.evaluate([])


def test_arguments_that_would_be_ignored_are_refused(tmp_path: Path) -> None:
    for change, words in (
        ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy must be random or sequential"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor has no effect here"),
        ({"neftune_noise_alpha": 5.0}, "neftune_noise_alpha is not supported"),
    ):
        with pytest.raises(ConfigError, match=words):
            PreferenceTrainer(tiny_model(), arguments(tmp_path, **change), objective="dpo", train_dataset=tiny_rows(2))


def test_the_logged_loss_is_a_mean_over_rows_not_over_steps(tmp_path: Path) -> None:
    """Five rows as 4 + 1 in one logging window: the last row does not count for four."""
    each = trained(tmp_path, tiny_rows(5), num_train_epochs=1, max_steps=-1, logging_steps=1)
    window = trained(tmp_path, tiny_rows(5), num_train_epochs=1, max_steps=-1, logging_steps=2)
    first, last = history(each)
    assert history(window) == pytest.approx([(4 * first + last) / 5])
