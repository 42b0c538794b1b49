"""Random scores for claims that hold whatever the numbers are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prefopt import Scores, get_loss
from prefopt.losses import Loss
from prefopt.testing import make_scores


def scores_for(loss: Loss, *, tokens: st.SearchStrategy[int] | None = None) -> st.SearchStrategy[Scores]:
    """Scores with what a loss reads: one to four prompts, one to nine tokens, log-ratios from tiny to large."""
    return st.builds(
        partial(make_scores, loss),
        seed=st.integers(0, 10**6),
        scale=st.floats(0.01, 30),
        prompts=st.integers(1, 4),
        tokens=st.integers(1, 9) if tokens is None else tokens,
    )


def on_random_scores(name: str, *, tokens: st.SearchStrategy[int] | None = None, **options: Any) -> Callable[..., Any]:
    """Run a test with `scores=` drawn for this loss."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        drawn = given(scores=scores_for(get_loss(name, **options), tokens=tokens))
        return settings(deadline=None, max_examples=30)(drawn(test))

    return decorate


ONE_TOKEN = st.just(1)


def same_values_and_gradients(ours: Callable[[Scores], Tensor], theirs: Callable[[Scores], Tensor], s: Scores) -> None:
    """Two losses `[B]` agree in value, and in their gradient with respect to the policy."""
    policy = s.policy.clone().requires_grad_()
    left, right = (function(dataclasses.replace(s, policy=policy)) for function in (ours, theirs))
    torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)
    (one,), (other,) = (torch.autograd.grad(value.sum(), policy) for value in (left, right))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def gradient(loss: Callable[[Scores], Any], scores: Scores) -> Tensor:
    """d(sum of losses) / d(policy), `[B, R, T]`."""
    policy = scores.policy.detach().clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(dataclasses.replace(scores, policy=policy)).losses.sum(), policy)
    return found


def from_ratios(
    chosen: list[float], rejected: list[float], *, dtype: torch.dtype = torch.float64, **extras: Any
) -> Scores:
    """One-token responses with these log-ratios, beside a reference of -3 nats."""
    reference = torch.full((len(chosen), 2), -3.0, dtype=dtype)
    ratios = torch.tensor([chosen, rejected], dtype=dtype).T
    return Scores.from_sums(reference + ratios, reference, **extras)


def value_of(name: str, **options: Any) -> Callable[[Scores], Tensor]:
    """The losses `[B]` of a registered loss with these hyperparameters, as a function of scores."""
    loss = get_loss(name, **options)
    return lambda scores: loss(scores).losses
