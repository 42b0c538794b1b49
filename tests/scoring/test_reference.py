from __future__ import annotations

import torch
from peft import LoraConfig, get_peft_model

from prefopt.data.collate import Collator
from prefopt.scoring import Scorer, score
from prefopt.scoring.reference import AdapterOffReference, FrozenTwinReference, ModelReference, NoReference, freeze
from tests.train.tiny import flat, tiny_model, tiny_rows


def with_lora() -> torch.nn.Module:
    torch.manual_seed(0)
    return get_peft_model(tiny_model(), LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))


def nudge(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)


DATA = Collator(0)(tiny_rows(4))


def test_no_reference_gives_nothing() -> None:
    assert NoReference()(DATA) is None


def test_adapter_off_is_the_base_model_and_carries_no_gradient() -> None:
    model = with_lora()
    nudge(model)
    found = AdapterOffReference(model, Scorer())(DATA)
    assert not found.logps.requires_grad
    torch.testing.assert_close(found.logps, score(tiny_model(), DATA).logps.detach())
    assert not torch.allclose(score(model, DATA).logps, found.logps)


def test_frozen_twin_stays_where_the_adapter_started() -> None:
    model = with_lora()
    nudge(model)  # an adapter that has been trained
    start = score(model, DATA).logps.detach()
    twin = FrozenTwinReference.of(model, Scorer())
    nudge(model)
    moved = flat(model)
    torch.testing.assert_close(twin(DATA).logps, start)
    assert torch.equal(flat(model), moved), "the policy must be as it was"
    assert not torch.allclose(score(model, DATA).logps, start)


def test_frozen_twin_leaves_a_graph_that_was_built_before_intact() -> None:
    model = with_lora()
    twin = FrozenTwinReference.of(model, Scorer())
    nudge(model)
    score(model, DATA).logps.sum().backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    logps = score(model, DATA).logps.sum()
    twin(DATA)
    logps.backward()
    for found, gradient in zip([p.grad for p in model.parameters() if p.grad is not None], expected, strict=True):
        torch.testing.assert_close(found, gradient)


def test_model_reference_says_which_it_is() -> None:
    reference = ModelReference(freeze(tiny_model()), Scorer(), {"model": "m"})
    assert reference.describe() == {"kind": "frozen model", "model": "m"}
    assert not any(p.requires_grad for p in reference.model.parameters())
