"""What a scorer says beside log-probabilities: the divergence from the reference and the squared probabilities."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from prefopt import Need
from prefopt.data.collate import Collator
from prefopt.scoring import Scorer
from prefopt.scoring.reference import AdapterOffReference, FrozenTwinReference, ModelReference, Reference, freeze
from tests.train.tiny import tiny_model, tiny_rows

DATA = Collator(0)(tiny_rows(5))
BOTH = {Need.KL, Need.SUM_SQUARES}


def distributions_by_hand(model: nn.Module) -> Tensor:
    """log p(v | context) for every scored position, float64 `[B, R, T, V]`, one response at a time."""
    b, r, t = DATA["mask"].shape
    out = torch.zeros(b, r, t, 97, dtype=torch.float64)
    for i in range(b):
        for j in range(r):
            length = int(DATA["attention_mask"][i, j].sum())
            start = int(DATA["prompt_lengths"][i])
            logits = model(input_ids=DATA["input_ids"][i, j, :length].unsqueeze(0)).logits[0].double()
            out[i, j, : length - start] = logits[start - 1 : length - 1].log_softmax(-1)
    return out


def policy_and_references() -> list[tuple[str, nn.Module, Reference, nn.Module]]:
    """A moved policy, a reference of each kind, and a plain model that says what the reference should."""
    torch.manual_seed(0)
    found = []
    other = freeze(tiny_model(seed=1))
    found.append(("model", tiny_model(), ModelReference(other, Scorer()), other))
    for kind in ("adapter off", "twin"):
        torch.manual_seed(0)
        lora = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "lm_head"], init_lora_weights=False)
        policy = get_peft_model(tiny_model(), lora)
        if kind == "adapter off":
            found.append((kind, policy, AdapterOffReference(policy, Scorer()), tiny_model()))
            continue
        torch.manual_seed(0)
        start = get_peft_model(tiny_model(), lora)
        twin = FrozenTwinReference.of(policy, Scorer())
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter += 0.05 * parameter.requires_grad
        found.append((kind, policy, twin, start))
    return found


@pytest.mark.parametrize(("kind", "policy", "reference", "plain"), policy_and_references(), ids=lambda x: str(x)[:12])
@pytest.mark.parametrize("backend", ["plain", "chunked"])
def test_statistics_are_their_definitions(
    kind: str, policy: nn.Module, reference: Reference, plain: nn.Module, backend: str
) -> None:
    known = reference(DATA, distributions=True)
    assert known is not None
    scorer = Scorer(backend=backend, chunk=5)  # type: ignore[arg-type]
    found = scorer(policy, DATA, wanted=BOTH, reference=known.distributions)
    with torch.no_grad():
        p, q = distributions_by_hand(policy), distributions_by_hand(plain)
    assert found.kl is not None
    assert found.sum_squares is not None
    mask = DATA["mask"]
    torch.testing.assert_close(found.kl[mask].double(), (q.exp() * (q - p)).sum(-1)[mask], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found.sum_squares[mask].double(), p.exp().square().sum(-1)[mask], rtol=1e-4, atol=1e-6)
    assert found.kl[mask].sum() > 1e-3, f"policy and {kind} must differ for this test to say anything"
    assert found.kl.requires_grad
    assert not found.sum_squares.requires_grad
    assert not found.kl[~mask].any()


@pytest.mark.parametrize(("kind", "policy", "reference", "plain"), policy_and_references(), ids=lambda x: str(x)[:12])
def test_the_gradient_through_the_divergence_is_that_of_the_definition(
    kind: str, policy: nn.Module, reference: Reference, plain: nn.Module
) -> None:
    known = reference(DATA, distributions=True)
    assert known is not None
    found = Scorer(backend="chunked", chunk=5)(policy, DATA, wanted=BOTH, reference=known.distributions)
    trained = [p for p in policy.parameters() if p.requires_grad]
    assert found.kl is not None
    ours = torch.autograd.grad(found.kl.sum() + found.logps.sum(), trained)
    with torch.no_grad():
        q = distributions_by_hand(plain)
    p = distributions_by_hand(policy)
    labels = DATA["input_ids"].new_zeros(DATA["mask"].shape)
    for i, row in enumerate(DATA["mask"]):
        start, width = int(DATA["prompt_lengths"][i]), DATA["mask"].shape[-1]
        padded = torch.nn.functional.pad(DATA["input_ids"][i], (0, width))
        labels[i] = padded[:, start : start + width] * row
    picked = p.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    value = ((q.exp() * (q - p)).sum(-1) + picked)[DATA["mask"]].sum()
    for mine, theirs in zip(ours, torch.autograd.grad(value, trained), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


def test_nothing_is_computed_that_nobody_asked_for() -> None:
    found = Scorer()(tiny_model(), DATA)
    assert found.kl is None
    assert found.sum_squares is None
    assert found.distributions is None
