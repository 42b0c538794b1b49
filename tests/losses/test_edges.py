"""Every loss on pairs is finite, in value and gradient, at the edges of what a batch can hold."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss, loss_names
from prefopt.losses import Loss
from prefopt.testing import make_scores
from tests.losses.drawn import gradient

EXTREME = 1e4  # nats
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("dpo", {"reference_free": True}),
    ("dpo", {"label_smoothing": 0.2}),
    ("refined_dpo", {"variant": "soft_label"}),
    ("odpo", {"offset": "gap"}),
    ("dpo_shift", {"schedule": "linear_increase"}),
    ("f_dpo", {"divergence": "reverse_kl"}),
    ("f_dpo", {"divergence": "forward_kl"}),
    ("f_dpo", {"divergence": "alpha"}),
    ("f_dpo", {"divergence": "alpha", "alpha": 0.01}),
    ("chi_po", {"r_max": 1.0}),
    ("irpo", {"nll_norm": "batch_tokens"}),
    ("discopop", {"beta": 1.0, "tau": 5.0}),
    ("exo_pair", {"beta": 10.0}),
    ("cal_dpo", {"beta": 1.0}),
]
PAIRS = [(name, {}) for name in loss_names() if get_loss(name).responses == "pair"]
named = pytest.mark.parametrize(
    ("name", "options"), [*PAIRS, *VARIANTS], ids=lambda part: part if isinstance(part, str) else str(part or "")
)


def assert_finite(loss: Loss, scores: Scores) -> None:
    out = loss(scores)
    assert torch.isfinite(out.losses).all()
    assert torch.isfinite(out.rewards).all()
    for name, value in out.metrics.items():
        assert torch.isfinite(value).all(), name
    assert torch.isfinite(gradient(loss, scores)).all()


@named
@pytest.mark.parametrize("signs", [(1, -1), (-1, 1), (1, 1), (-1, -1)], ids=str)
def test_finite_when_either_response_is_ten_thousand_nats_off(
    name: str, options: dict[str, Any], signs: tuple[int, int]
) -> None:
    loss = get_loss(name, **options)
    scores = make_scores(loss, dtype=torch.float32)
    shift = EXTREME * torch.tensor(signs, dtype=torch.float32).view(1, 2, 1)
    assert_finite(loss, dataclasses.replace(scores, policy=scores.policy + shift.clamp(max=0)))
    if scores.reference is not None:  # log-ratios of either sign: the reference is off instead
        assert_finite(loss, dataclasses.replace(scores, reference=scores.reference - shift.clamp(min=0)))


@named
def test_finite_for_equal_responses(name: str, options: dict[str, Any]) -> None:
    loss = get_loss(name, **options)
    scores = make_scores(loss, dtype=torch.float32)
    fields = {f.name: getattr(scores, f.name) for f in dataclasses.fields(scores)}
    twice = {k: v[:, :1].expand_as(v) for k, v in fields.items() if isinstance(v, torch.Tensor) and v.dim() > 1}
    assert_finite(loss, dataclasses.replace(scores, **twice))


@named
def test_finite_for_one_prompt_of_one_token(name: str, options: dict[str, Any]) -> None:
    loss = get_loss(name, **options)
    assert_finite(loss, make_scores(loss, prompts=1, tokens=1, dtype=torch.float32))


@named
@pytest.mark.parametrize("empty", [[0], [1], [0, 1]], ids=["chosen", "rejected", "both"])
def test_finite_for_a_response_without_scored_tokens(name: str, options: dict[str, Any], empty: list[int]) -> None:
    loss = get_loss(name, **options)
    scores = make_scores(loss, dtype=torch.float32)
    mask = scores.mask.clone()
    mask[:, empty] = False
    assert_finite(loss, dataclasses.replace(scores, mask=mask))
    assert not gradient(loss, dataclasses.replace(scores, mask=mask))[:, empty].any()
