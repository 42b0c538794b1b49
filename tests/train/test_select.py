"""A step compares the responses that its loss draws, and nothing but the draw depends on the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from prefopt import ConfigError, get_loss
from prefopt.context import Draw, StepContext
from prefopt.data import Collator
from prefopt.losses import Loss, Objective
from prefopt.scoring.policy import Scorer
from prefopt.scoring.reference import ModelReference, freeze
from prefopt.train.select import select, selecting, with_responses
from prefopt.train.step import preference_step, score_batch

from .tiny import tiny_model, tiny_rows


@pytest.fixture
def parts() -> dict[str, Any]:
    scorer = Scorer()
    return {"scorer": scorer, "reference": ModelReference(freeze(tiny_model(seed=1)), scorer)}


def batch_of(count: int = 4, responses: int = 5) -> dict[str, torch.Tensor]:
    return Collator()([{**row, "index": 10 + n} for n, row in enumerate(tiny_rows(count, responses=responses))])


def context(step: int = 0) -> StepContext:
    return StepContext(draw=Draw(seed=7, step=step), step=step)


def test_the_step_is_that_of_the_drawn_responses_alone(parts: dict[str, Any]) -> None:
    loss, model, batch = get_loss("mc_po", num_negatives=2), tiny_model(), batch_of()
    chosen = select(model, batch, loss, context=context(), **parts)
    assert chosen["mask"].shape[:2] == (4, 3)
    scores = score_batch(model, batch, loss.needs, **parts)
    places = loss.spec.select(scores, loss.params, context())
    values = scores.logratios.gather(1, places) * loss.params.beta
    expected = values.logsumexp(-1) - values[:, 0]
    torch.testing.assert_close(preference_step(model, chosen, loss, **parts).out.losses, expected)


def test_rows_of_the_collator_give_the_same_batch(parts: dict[str, Any]) -> None:
    rows = tiny_rows(3, responses=4)
    places = torch.tensor([[0, 3, 1], [0, 2, -1], [0, 1, 2]])
    found = with_responses(Collator()(rows), places)
    fewer = [
        {
            **row,
            "responses": [row["responses"][p] for p in keep if p >= 0],
            "masks": [row["masks"][p] for p in keep if p >= 0],
        }
        for row, keep in zip(rows, places.tolist(), strict=True)
    ]
    wanted = Collator()(fewer)
    assert found.keys() == wanted.keys()
    for name in found.keys() - {"input_ids", "attention_mask"}:
        assert torch.equal(found[name], wanted[name]), name
    there = wanted["mask"].any(-1, keepdim=True)
    for name in ("input_ids", "attention_mask"):
        assert torch.equal(found[name] * there, wanted[name] * there), name


def test_what_a_batch_has_per_response_goes_along() -> None:
    rows = [
        {
            **row,
            "steps": [[k] * len(ids) for k, ids in enumerate(row["responses"])],
            "step_rewards": [[float(k)] for k in range(4)],
            "external": [float(k) for k in range(4)],
        }
        for row in tiny_rows(2, responses=4)
    ]
    found = with_responses(Collator()(rows), torch.tensor([[0, 3], [0, 2]]))
    assert found["external"].tolist() == [[0, 3], [0, 2]]
    assert found["step_rewards"].tolist() == [[[0], [3]], [[0], [2]]]
    assert [found["steps"][b, 1][found["mask"][b, 1]].unique().item() for b in (0, 1)] == [3, 2]


def test_a_prompt_draws_the_same_in_any_micro_batch(parts: dict[str, Any]) -> None:
    loss, model, rows = get_loss("mc_po"), tiny_model(), tiny_rows(4, responses=5)
    items = [{**row, "index": n} for n, row in enumerate(rows)]
    together = select(model, Collator()(items), loss, context=context(), **parts)
    for n, item in enumerate(items):
        alone = select(model, Collator()([item]), loss, context=context(), **parts)
        width, length = alone["input_ids"].shape[-1], alone["mask"].shape[-1]
        assert torch.equal(alone["input_ids"][0], together["input_ids"][n, :, :width])
        assert torch.equal(alone["mask"][0], together["mask"][n, :, :length])


def test_the_draw_follows_the_policy_as_it_is_now(parts: dict[str, Any]) -> None:
    loss, batch = get_loss("mc_po", sampling="argmax"), batch_of(8)
    one, other = (select(tiny_model(seed=s), batch, loss, context=context(), **parts) for s in (2, 3))
    assert one["input_ids"].shape != other["input_ids"].shape or not torch.equal(one["input_ids"], other["input_ids"])


@pytest.mark.parametrize("told", [None, StepContext(training=False)])
def test_evaluation_compares_every_response(parts: dict[str, Any], told: StepContext | None) -> None:
    batch = batch_of()
    assert select(tiny_model(), batch, get_loss("mc_po"), context=told, **parts) is batch


def test_a_loss_that_does_not_draw_keeps_its_batch(parts: dict[str, Any]) -> None:
    batch = batch_of(responses=2)
    assert select(tiny_model(), batch, get_loss("dpo"), context=context(), **parts) is batch
    empty = {name: value[:0] for name, value in batch.items()}
    assert select(tiny_model(), empty, get_loss("mc_po"), context=context(), **parts) is empty


def test_the_draw_leaves_mode_gradients_and_random_state_as_they_were(parts: dict[str, Any]) -> None:
    model = tiny_model(attention_dropout=0.5).train()
    before = torch.random.get_rng_state()
    loss, batch = get_loss("mc_po"), batch_of()
    one, other = (select(model, batch, loss, context=context(), **parts) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert torch.equal(before, torch.random.get_rng_state())
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_too_few_candidates_leave_places_empty(parts: dict[str, Any]) -> None:
    loss, model = get_loss("mc_po", num_negatives=6), tiny_model()
    found = select(model, batch_of(responses=3), loss, context=context(), **parts)
    assert found["mask"].any(-1).sum(-1).tolist() == [3] * 4
    out = preference_step(model, found, loss, **parts).out
    assert out.metrics["mc_po/negatives"].tolist() == [2] * 4


def test_two_losses_that_draw_are_refused() -> None:
    loss = get_loss("mc_po")
    other = Loss(loss.spec, loss.params)
    with pytest.raises(ConfigError, match="both draw the responses of a step"):
        selecting(Objective((loss, other), (1.0, 1.0)))
    assert selecting(Objective.of(get_loss("nll"), loss)) is loss
