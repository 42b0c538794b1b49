"""A negative log-likelihood over the tokens of the batch: the same on any number of ranks, and alone in evaluation."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from prefopt import Scores, get_loss
from prefopt.context import Gather, StepContext
from prefopt.losses import Loss
from prefopt.testing import make_scores
from tests.losses.drawn import gradient

LOSSES = {
    "irpo": {"alpha": 0.7},
    "cpo": {"cpo_alpha": 0.7},
    "orpo": {"lam": 0.7},
}


class Ranks(Gather):
    """One of several ranks, told beforehand what all of them hold."""

    def __init__(self, everyone: Tensor) -> None:
        self.everyone = everyone

    def __call__(self, values: Tensor) -> Tensor:
        return self.everyone.to(values.dtype)


def rows(scores: Scores, picked: slice) -> Scores:
    fields = {f.name: getattr(scores, f.name) for f in dataclasses.fields(scores)}
    return dataclasses.replace(scores, **{k: v[picked] for k, v in fields.items() if isinstance(v, Tensor)})


def batch(name: str) -> tuple[Loss, Scores]:
    loss = get_loss(name, nll_norm="batch_tokens", **LOSSES[name])
    return loss, make_scores(loss, prompts=5)


@pytest.mark.parametrize("name", LOSSES)
def test_the_mean_is_the_token_mean_of_the_batch(name: str) -> None:
    loss, scores = batch(name)
    nll = loss(scores, StepContext()).metrics[f"{name}/nll"]
    torch.testing.assert_close(nll.mean(), -scores.policy[:, 0][scores.mask[:, 0]].mean())


@pytest.mark.parametrize("name", LOSSES)
def test_two_ranks_have_the_value_and_the_gradient_of_one(name: str) -> None:
    loss, scores = batch(name)
    policy = scores.policy.clone().requires_grad_()
    scores = dataclasses.replace(scores, policy=policy)
    whole = loss(scores, StepContext()).losses
    context = StepContext(gather=Ranks(scores.lengths[:, 0]))
    parts = torch.cat([loss(rows(scores, part), context).losses for part in (slice(0, 2), slice(2, 5))])
    torch.testing.assert_close(parts, whole)
    (one,), (several,) = (torch.autograd.grad(losses.mean(), policy) for losses in (whole, parts))
    torch.testing.assert_close(several, one)


@pytest.mark.parametrize("name", LOSSES)
def test_without_context_and_in_evaluation_each_response_counts_by_itself(name: str) -> None:
    loss, scores = batch(name)
    plain = get_loss(name, **LOSSES[name])(scores).losses
    torch.testing.assert_close(loss(scores).losses, plain)
    torch.testing.assert_close(loss(scores, StepContext(training=False)).losses, plain)
    assert not torch.allclose(loss(scores, StepContext()).losses, plain)


@pytest.mark.parametrize("name", LOSSES)
def test_a_batch_without_tokens_is_finite(name: str) -> None:
    loss, scores = batch(name)
    empty = dataclasses.replace(scores, mask=torch.zeros_like(scores.mask))
    assert torch.isfinite(loss(empty, StepContext()).losses).all()
    assert not gradient(lambda s: loss(s, StepContext()), empty).any()
