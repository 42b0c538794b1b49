from __future__ import annotations

from typing import Any

import pytest
import torch

from prefopt import ConfigError, Scores, get_loss
from prefopt.testing import make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.token_vectors import check_token_case, token_cases


@on_random_scores("dpo_with_anchor")
def test_equals_dpo_at_an_anchor_weight_of_zero(scores: Scores) -> None:
    ours = value_of("dpo_with_anchor", beta=0.2, anchor_weight=0.0)
    same_values_and_gradients(ours, value_of("dpo", beta=0.2), scores)


@pytest.mark.parametrize("case", token_cases("dpo_with_anchor"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_token_case(get_loss("dpo_with_anchor", **case["params"]), case)


def test_the_anchor_pulls_the_chosen_response_and_leaves_the_rejected_one() -> None:
    loss = get_loss("dpo_with_anchor", beta=0.2)
    scores = make_scores(loss)
    more = gradient(loss, scores) - gradient(get_loss("dpo", beta=0.2), scores)
    assert (more[:, 0][scores.mask[:, 0]] < 0).all()
    assert not more[:, 1].any()


def test_a_larger_anchor_pulls_longer() -> None:
    scores = make_scores(get_loss("dpo_with_anchor"))
    weak, strong = (gradient(get_loss("dpo_with_anchor", anchor=anchor), scores)[:, 0] for anchor in (0.0, 5.0))
    assert (strong[scores.mask[:, 0]] < weak[scores.mask[:, 0]]).all()


def test_an_anchor_without_weight_is_refused() -> None:
    with pytest.raises(ConfigError, match="anchor has no effect here: anchor_weight is 0"):
        get_loss("dpo_with_anchor", anchor_weight=0.0, anchor=1.0)


def test_the_anchor_is_reported_unweighted() -> None:
    scores = make_scores(get_loss("dpo_with_anchor"))
    out = get_loss("dpo_with_anchor", anchor_weight=3.0)(scores)
    plain = get_loss("dpo")(scores).losses
    torch.testing.assert_close(3 * out.metrics["dpo_with_anchor/anchor"], out.losses - plain)
