"""Responses that hardly are: equal, of one token, without a scored token, far from the reference, beside junk."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.losses import Loss
from prefopt.testing import make_scores
from tests.losses.drawn import gradient

LOSSES = [
    get_loss("token_weighted_dpo"),
    get_loss("step_dpo", scope="first_error"),
    get_loss("scdpo", scope="suffix"),
    get_loss("full_step_dpo"),
    get_loss("full_step_dpo", weight_scale="none"),
    get_loss("full_step_dpo_surrogate"),
    get_loss("rise", nll_weight=0.5),
    get_loss("cdpo"),
    get_loss("cdpo", only_neg=False),
    get_loss("bmc"),
    get_loss("bmc", weight_source="own_model"),
    get_loss("dpo_with_anchor"),
    get_loss("ddpo"),
    get_loss("dorpo"),
    get_loss("dorpo", weight_inside=False),
    get_loss("mc_po"),
    get_loss("d2o"),
]
each = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
COLUMNS = ("weights", "token_scores", "diff", "steps", "reference")


def assert_finite(loss: Loss, scores: Scores) -> None:
    out = loss(scores)
    for name, value in {"losses": out.losses, "rewards": out.rewards, **out.metrics}.items():
        assert torch.isfinite(value).all(), name
    found = gradient(loss, scores)
    assert torch.isfinite(found).all()
    assert not found[~scores.mask].any()


@each
def test_equal_responses(loss: Loss) -> None:
    scores = make_scores(loss)
    names = ("policy", "reference", "mask")
    same = {
        n: getattr(scores, n)[:, :1].expand_as(getattr(scores, n)).clone()
        for n in names
        if getattr(scores, n) is not None
    }
    assert_finite(loss, replace(scores, **same))


@each
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_prompt_with_responses_of_one_token(loss: Loss, dtype: torch.dtype) -> None:
    assert_finite(loss, make_scores(loss, prompts=1, tokens=1, dtype=dtype))


@each
@pytest.mark.parametrize("response", [0, 1])
def test_a_response_without_a_scored_token(loss: Loss, response: int) -> None:
    scores = make_scores(loss)
    mask = scores.mask.clone()
    mask[0, response] = False
    assert_finite(loss, replace(scores, mask=mask))


@each
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("side", ["policy", "reference"])
def test_ten_thousand_nats_per_token(loss: Loss, dtype: torch.dtype, side: str) -> None:
    scores = make_scores(loss, dtype=dtype)
    if getattr(scores, side) is not None:
        for response in range(scores.policy.shape[1]):
            far = getattr(scores, side).clone()
            far[:, response] = -1e4
            assert_finite(loss, replace(scores, **{side: far}))


@each
@pytest.mark.parametrize("junk", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_junk_in_the_padding_of_every_column(loss: Loss, junk: float) -> None:
    scores = make_scores(loss)
    dirty = {"policy": scores.policy.masked_fill(~scores.mask, junk)}
    for name in COLUMNS:
        value = getattr(scores, name)
        if value is not None:
            filler = junk if value.is_floating_point() else 10**6 if name == "steps" else True
            dirty[name] = value.masked_fill(~scores.mask, filler)
    soiled = replace(scores, **dirty)
    clean, found = loss(scores), loss(soiled)
    torch.testing.assert_close(found.losses, clean.losses, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.rewards, clean.rewards, rtol=1e-12, atol=0)
    for name, value in clean.metrics.items():
        torch.testing.assert_close(found.metrics[name], value, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient(loss, soiled), gradient(loss, scores), rtol=1e-12, atol=0)


@each
def test_data_columns_receive_no_gradient(loss: Loss) -> None:
    scores = make_scores(loss)
    names = ("weights", "token_scores", "step_rewards", "external", "deviation")
    leaves = {n: getattr(scores, n).clone().requires_grad_() for n in names if getattr(scores, n) is not None}
    policy = scores.policy.clone().requires_grad_()
    loss(replace(scores, policy=policy, **leaves)).losses.sum().backward()
    assert policy.grad is not None
    assert all(leaf.grad is None for leaf in leaves.values())
