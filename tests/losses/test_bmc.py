from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.losses._weights import difference_weights
from prefopt.testing import PROPERTIES, make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.token_vectors import check_token_case, column, token_cases
from tests.losses.vectors import REGISTRY, SIDES


@on_random_scores("bmc")
def test_equals_dpo_where_no_token_differs(scores: Scores) -> None:
    same = replace(scores, diff=torch.zeros_like(scores.diff))
    for source in ("policy", "own_model"):
        ours = value_of("bmc", beta=0.2, weight_source=source)
        same_values_and_gradients(ours, value_of("dpo", beta=0.2), same)


@on_random_scores("bmc")
def test_equals_dpo_at_delta_zero(scores: Scores) -> None:
    same_values_and_gradients(value_of("bmc", beta=0.2, delta=0.0), value_of("dpo", beta=0.2), scores)


@pytest.mark.parametrize("case", token_cases("bmc"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_token_case(get_loss("bmc", **case["params"]), case, diff=column("{}_diff"))


def shared_batch() -> tuple[Scores, Any]:
    case, shared = REGISTRY["registry/bmc"], REGISTRY["registry/inputs"]["inputs"]
    width = 5

    def block(rows: dict[str, list[list[float]]]) -> torch.Tensor:
        return torch.tensor(
            [
                [rows[side][b] + [0.0] * (width - len(rows[side][b])) for side in SIDES]
                for b in range(len(rows["chosen"]))
            ],
            dtype=torch.float64,
        )

    lengths = torch.tensor([[len(shared[f"policy_{side}_tokens"][b]) for side in SIDES] for b in range(3)])
    scores = Scores(
        policy=block({side: shared[f"policy_{side}_tokens"] for side in SIDES}),
        reference=block({side: shared[f"ref_{side}_tokens"] for side in SIDES}),
        diff=block({side: case["inputs"][f"diff_mask_{side}"] for side in SIDES}),
        mask=torch.arange(width) < lengths.unsqueeze(-1),
    )
    return scores, case


def test_shared_batch_values() -> None:
    scores, case = shared_batch()
    expected, params = case["expected"], {name: case["inputs"][name] for name in ("beta", "delta")}
    weights = difference_weights(scores.policy, scores.diff, params["delta"])
    for number, side in enumerate(SIDES):
        for b, wanted in enumerate(expected[f"weights_{side}"]):
            assert weights[b, number, : len(wanted)].tolist() == pytest.approx(wanted, rel=1e-9)
    assert get_loss("bmc", **params)(scores).losses.tolist() == pytest.approx(expected["loss"], rel=1e-9)
    released = get_loss("bmc", weight_source="own_model", **params)(scores).losses
    margins = expected["margin_released_code_reference_weights"]
    wanted = [math.log1p(math.exp(-params["beta"] * margin)) for margin in margins]
    assert released.tolist() == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(("logp", "weight"), [(-0.874, 1 + math.exp(0.874)), (-2.05, 3.5), (0.0, 2.0), (-1e4, 3.5)])
def test_an_unexpected_token_weighs_more_up_to_the_clip(logp: float, weight: float) -> None:
    value = torch.tensor([[[logp, logp]]], dtype=torch.float64)
    found = difference_weights(value, torch.tensor([[[1.0, 0.0]]]), 2.5)
    assert found.flatten().tolist() == pytest.approx([weight, 1.0])


def test_no_gradient_flows_through_the_probabilities_of_the_weights() -> None:
    loss = get_loss("bmc", beta=0.1)
    scores = make_scores(loss)
    ratio = gradient(loss, scores).masked_fill(~scores.mask, 0)
    weights = difference_weights(scores.policy, scores.diff, 2.0).masked_fill(~scores.mask, 0)
    size = (ratio.abs() / weights).nan_to_num().amax((1, 2))
    torch.testing.assert_close(ratio.abs(), weights * size.view(-1, 1, 1))


@pytest.mark.parametrize("junk", [0, 1])
def test_differences_in_padding_are_not_read(junk: int) -> None:
    loss = get_loss("bmc")
    scores = make_scores(loss)
    dirty = replace(scores, diff=scores.diff.masked_fill(~scores.mask, junk))
    assert torch.equal(loss(dirty).losses, loss(scores).losses)
    assert torch.equal(loss(dirty).metrics["bmc/weight"], loss(scores).metrics["bmc/weight"])


@pytest.mark.parametrize("title", PROPERTIES)
def test_weights_of_each_model_keep_the_contract(title: str) -> None:
    PROPERTIES[title](get_loss("bmc", weight_source="own_model"))
