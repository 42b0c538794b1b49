"""The derivative of the head's log-probabilities, written out by hand, is autograd's, for every head and chunking."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from prefopt.scoring.fused import fused_logps, is_plain, trl_logps
from prefopt.scoring.heads import Head
from prefopt.scoring.tokens import token_logps

HEADS = {
    "plain": {},
    "scaled": {"scale": 0.3},
    "soft cap": {"cap": 2.0},
    "scaled and capped": {"scale": 3.0, "cap": 1.5},
}


def head(*, bias: bool = True, dtype: torch.dtype = torch.float64, **options: float) -> Head:
    torch.manual_seed(0)
    return Head(nn.Linear(6, 11, bias=bias, dtype=dtype), **options)


def states(count: int = 9, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(count, 6, generator=generator, dtype=dtype).requires_grad_()
    return hidden, torch.randint(11, (count,), generator=generator)


def slopes(values: Tensor, hidden: Tensor, chosen: Head) -> list[Tensor]:
    upstream = torch.arange(1.0, 1 + len(values), dtype=values.dtype).cos()
    leaves = [hidden, *(p for p in chosen.module.parameters() if p.requires_grad)]
    return list(torch.autograd.grad((values * upstream).sum(), leaves))


@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize("trained", [True, False], ids=["trained head", "frozen head"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_value_and_gradient_are_those_of_the_definition(
    options: dict[str, float], chunk: int, trained: bool, bias: bool
) -> None:
    chosen, (hidden, labels) = head(bias=bias, **options), states()
    chosen.module.requires_grad_(trained)
    expected = token_logps(chosen.logits(hidden), labels)
    found = fused_logps(hidden, labels, chosen, chunk=chunk)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for one, other in zip(slopes(found, hidden, chosen), slopes(expected, hidden, chosen), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_trls_function_agrees(options: dict[str, float], bias: bool) -> None:
    chosen, (hidden, labels) = head(bias=bias, dtype=torch.float32, **options), states(dtype=torch.float32)
    expected = fused_logps(hidden, labels, chosen, chunk=4)
    found = trl_logps(hidden, labels, chosen, budget=4 * 4096 * 5)  # five entries of the vocabulary at a time
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(slopes(found, hidden, chosen), slopes(expected, hidden, chosen), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_graph_that_is_kept_gives_its_gradient_twice() -> None:
    chosen, (hidden, labels) = head(), states()
    total = fused_logps(hidden, labels, chosen, chunk=4).sum()
    once = torch.autograd.grad(total, [hidden, chosen.module.weight], retain_graph=True)
    twice = torch.autograd.grad(total, [hidden, chosen.module.weight])
    for one, other in zip(once, twice, strict=True):
        torch.testing.assert_close(one, other)


def test_large_logits_overflow_nothing() -> None:
    chosen, (hidden, labels) = head(dtype=torch.float32), states(dtype=torch.float32)
    far = hidden.detach() * 1e4
    found = fused_logps(far.requires_grad_(), labels, chosen, chunk=4)
    assert torch.isfinite(found).all()
    assert torch.isfinite(torch.autograd.grad(found.sum(), far)[0]).all()


def test_without_tokens_the_head_still_has_a_gradient_of_zero() -> None:
    chosen, (hidden, labels) = head(), states(0)
    found = fused_logps(hidden, labels, chosen, chunk=4)
    assert found.shape == (0,)
    assert not torch.autograd.grad(found.sum(), chosen.module.weight)[0].any()


def test_under_autocast_products_are_half_and_sums_are_float32() -> None:
    chosen, (hidden, labels) = head(dtype=torch.float32), states(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = fused_logps(hidden, labels, chosen, chunk=4)
        expected = token_logps(chosen.logits(hidden), labels)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    for one, other in zip(slopes(found, hidden, chosen), slopes(expected, hidden, chosen), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


def test_blocks_of_one_call_are_not_those_of_another() -> None:
    first, second = head(), head(cap=2.0)
    (hidden, labels), (others, names) = states(), states()
    others = (others.detach() + 1).requires_grad_()
    found = [fused_logps(hidden, labels, first, chunk=4), fused_logps(others, names, second, chunk=4)]
    with torch.no_grad():
        fused_logps(hidden, labels, first, chunk=4)
    expected = [token_logps(first.logits(hidden), labels), token_logps(second.logits(others), names)]
    for ours, theirs, values, one in zip(found, expected, (hidden, others), (first, second), strict=True):
        torch.testing.assert_close(ours, theirs)
        for slope, right in zip(slopes(ours, values, one), slopes(theirs, values, one), strict=True):
            torch.testing.assert_close(slope, right)


def test_a_head_that_something_acts_on_is_not_plain() -> None:
    assert is_plain(head())
    with FakeTensorMode():
        assert is_plain(Head(nn.Linear(6, 11))), "an estimate computes without content what a run computes"

    class Odd(nn.Linear):
        pass

    assert not is_plain(Head(Odd(6, 11)))


@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("lower", [False, True], ids=["float32", "bfloat16"])
def test_rows_that_are_read_apart_give_what_a_block_gives(
    options: dict[str, float], lower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, (hidden, labels) = head(dtype=torch.float32, **options), states(dtype=torch.float32)
    found = []
    for piece in (4 * 2**20, 88):  # two rows of eleven logits at a time
        monkeypatch.setattr("prefopt.scoring.fused._PIECE", piece)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=lower):
            logps = fused_logps(hidden, labels, chosen, chunk=5)
        grads = torch.autograd.grad(logps.sum(), [hidden, *chosen.module.parameters()])
        found.append([logps, *grads])
    for whole, apart in zip(*found, strict=True):
        torch.testing.assert_close(apart, whole, rtol=1e-5, atol=1e-5)
