from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from prefopt import ConfigError, Scores, get_loss
from prefopt.context import StepContext
from tests.losses.drawn import on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import PRECISIONS, SIDES, cases, check_case, stacked, tensor

BY_TOKEN: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "token.json").read_text())


@pytest.mark.parametrize("case", cases("irpo", nll_norm="sequence"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_case(get_loss("irpo", **case["params"]), case)


@pytest.mark.parametrize("case", cases("irpo", nll_norm="token"), ids=lambda case: case["id"])
def test_worked_values_with_the_nll_over_the_tokens_of_the_batch(case: dict[str, Any]) -> None:
    """The case adds the batch's token mean to every pair; here each has its share of it, and the mean is the same."""
    check_case(
        get_loss("irpo", **{**case["params"], "nll_norm": "batch_tokens"}), case, context=StepContext(), by_mean=True
    )


def reasoning(inputs: dict[str, Any], dtype: torch.dtype) -> Scores:
    """Chains of reasoning whose padding holds numbers that must not count."""
    sides = {model: [tensor(inputs[f"{model}_{s}_logps"], dtype) for s in SIDES] for model in ("policy", "ref")}
    mask = [tensor(inputs[f"{s}_mask"], dtype).bool() for s in SIDES]
    width = max(m.shape[-1] for m in mask)
    return Scores(
        policy=stacked(sides["policy"], width), reference=stacked(sides["ref"], width), mask=stacked(mask, width)
    )


@pytest.mark.parametrize("case", [case for case in BY_TOKEN if case["method"] == "irpo"], ids=["alpha 1", "alpha 0.25"])
def test_worked_values_on_chains_of_reasoning(case: dict[str, Any]) -> None:
    assert case["params"]["nll_norm"] == "response_tokens"
    options = {**case["params"], "nll_norm": "sequence"}
    for dtype, rtol, atol in PRECISIONS:
        losses = get_loss("irpo", **options)(reasoning(case["inputs"], dtype)).losses
        torch.testing.assert_close(losses, tensor(case["expected_loss"], dtype), rtol=rtol, atol=atol)


def test_worked_value_of_the_library_shortcut_on_chains_of_reasoning() -> None:
    (case,) = (case for case in BY_TOKEN if case["method"] == "irpo_batch_token_nll")
    loss = get_loss("irpo", **case["params"], nll_norm="batch_tokens")
    for dtype, rtol, atol in PRECISIONS:
        mean = loss(reasoning(case["inputs"], dtype), StepContext()).losses.mean()
        torch.testing.assert_close(mean, tensor(case["expected_mean"], dtype), rtol=rtol, atol=atol)


@on_random_scores("irpo")
def test_equals_dpo_when_alpha_is_zero(scores: Scores) -> None:
    same_values_and_gradients(value_of("irpo", alpha=0), value_of("dpo"), scores)


@on_random_scores("irpo")
def test_is_dpo_plus_alpha_times_nll(scores: Scores) -> None:
    dpo, nll = value_of("dpo"), value_of("nll")
    same_values_and_gradients(value_of("irpo", alpha=0.2), lambda s: dpo(s) + 0.2 * nll(s), scores)


def test_another_way_to_average_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="nll_norm must be one of 'sequence' or 'batch_tokens'; got 'response_tokens'"
    ):
        get_loss("irpo", nll_norm="response_tokens")
