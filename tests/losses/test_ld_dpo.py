from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from prefopt import ConfigError, Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import cases, check_case


@pytest.mark.parametrize("case", cases("ld_dpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("ld_dpo", **case["params"]), case)


@on_random_scores("ld_dpo")
def test_equals_dpo_at_full_weight(scores: Scores) -> None:
    same_values_and_gradients(value_of("ld_dpo", ld_alpha=1), value_of("dpo"), scores)


@on_random_scores("ld_dpo")
def test_equals_dpo_for_responses_of_equal_length(scores: Scores) -> None:
    full = dataclasses.replace(scores, mask=torch.ones_like(scores.mask))
    same_values_and_gradients(value_of("ld_dpo", ld_alpha=0), value_of("dpo"), full)


def test_tokens_beyond_the_shared_length_get_alpha_times_the_gradient() -> None:
    scores = make_scores(get_loss("ld_dpo"))
    found = gradient(get_loss("ld_dpo", ld_alpha=0.25), scores)
    shared = scores.lengths.min(-1).values
    for b in range(5):
        for r in range(2):
            for t in range(int(scores.lengths[b, r])):
                expected = found[b, r, 0] * (1 if t < shared[b] else 0.25)
                assert found[b, r, t].item() == pytest.approx(expected.item())


def test_position_counts_scored_tokens_so_that_leading_padding_does_not_matter() -> None:
    loss = get_loss("ld_dpo")
    scores = make_scores(loss)
    padded = {name: torch.nn.functional.pad(getattr(scores, name), (0, 3)) for name in ("policy", "reference", "mask")}
    leading = {name: value.roll(3, -1) for name, value in padded.items()}
    torch.testing.assert_close(loss(dataclasses.replace(scores, **leading)).losses, loss(scores).losses)


def test_weights_hold_for_the_reference_too_so_that_it_starts_at_log_2() -> None:
    scores = make_scores(get_loss("ld_dpo"))
    start = dataclasses.replace(scores, policy=scores.reference)
    assert get_loss("ld_dpo")(start).losses.tolist() == pytest.approx([math.log(2)] * 5)


def test_a_response_without_tokens_leaves_the_other_at_reduced_weight() -> None:
    scores = make_scores(get_loss("ld_dpo"))
    mask = scores.mask.clone()
    mask[:, 1] = False
    found = gradient(get_loss("ld_dpo", ld_alpha=0.5), dataclasses.replace(scores, mask=mask))
    assert torch.isfinite(found).all()
    assert not found[:, 1].any()


def test_sums_do_not_suffice() -> None:
    sums = torch.zeros(1, 2)
    with pytest.raises(ConfigError, match="loss 'ld_dpo' needs per-token log-probabilities, not sums"):
        get_loss("ld_dpo")(Scores.from_sums(sums, sums))
