from __future__ import annotations

from typing import Any

import pytest

from prefopt import Scores, get_loss
from prefopt.context import StepContext
from tests.losses.drawn import on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry


@pytest.mark.parametrize("case", cases("cpo"), ids=lambda case: case["id"])
def test_worked_values_with_the_nll_over_the_tokens_of_the_batch(case: dict[str, Any]) -> None:
    """The case adds the batch's token mean to every pair; here each has its share of it, and the mean is the same."""
    loss = get_loss("cpo", nll_norm="batch_tokens", **case["params"])
    check_case(loss, case, context=StepContext(), by_mean=True)


def test_shared_batch_values_and_derivatives_of_the_preference_term() -> None:
    check_registry(get_loss("cpo", beta=0.1, cpo_alpha=0), REGISTRY["registry/cpo_preference_term"])


@on_random_scores("cpo")
def test_equals_reference_free_dpo_without_nll(scores: Scores) -> None:
    ours, dpo = value_of("cpo", beta=0.3, cpo_alpha=0), value_of("dpo", beta=0.3, reference_free=True)
    same_values_and_gradients(ours, dpo, scores)


@on_random_scores("cpo")
def test_is_reference_free_dpo_plus_nll(scores: Scores) -> None:
    dpo, nll = value_of("dpo", reference_free=True), value_of("nll")
    same_values_and_gradients(value_of("cpo", cpo_alpha=0.5), lambda s: dpo(s) + 0.5 * nll(s), scores)


def test_needs_no_reference() -> None:
    assert "reference" not in get_loss("cpo").needs
