from __future__ import annotations

from typing import Any

import pytest
import torch

from prefopt import Need, Scores, get_loss
from prefopt.testing import PROPERTIES, make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.token_vectors import PRECISIONS, check_token_case, pair_scores, token_cases


@on_random_scores("rise")
def test_equals_dpo_without_the_nll(scores: Scores) -> None:
    same_values_and_gradients(value_of("rise", beta=0.2), value_of("dpo", beta=0.2), scores)


@on_random_scores("rise")
def test_equals_step_dpo_on_edit_pairs(scores: Scores) -> None:
    same_values_and_gradients(value_of("rise"), value_of("step_dpo"), scores)


@pytest.mark.parametrize("case", token_cases("rise_released"), ids=lambda case: case["id"])
def test_worked_values_of_the_released_form(case: dict[str, Any]) -> None:
    check_token_case(get_loss("rise", **case["params"]), case)


@pytest.mark.parametrize("case", token_cases("rise_three_term"), ids=lambda case: case["id"])
def test_the_three_terms_of_the_paper_follow_from_the_rows(case: dict[str, Any]) -> None:
    params = {name: case["params"][name] for name in ("beta", "nll_weight")}
    edit = torch.tensor([kind == "edit" for kind in case["inputs"]["pair_kind"]])
    for dtype, rtol, atol in PRECISIONS:
        _, scores = pair_scores(case["inputs"], dtype)
        out = get_loss("rise", **params)(scores)
        nll = out.metrics["rise/nll"]
        torch.testing.assert_close(nll, torch.tensor(case["expected_extra"]["nll"], dtype=dtype), rtol=rtol, atol=atol)
        pairs = out.losses - params["nll_weight"] * nll
        torch.testing.assert_close(pairs, torch.tensor(case["expected_loss"], dtype=dtype), rtol=rtol, atol=atol)
        total = pairs[edit].mean() + pairs[~edit].mean() + params["nll_weight"] * nll.mean()
        assert total.item() == pytest.approx(case["expected_mean"], rel=rtol)


def test_the_nll_pulls_the_chosen_response_and_leaves_the_rejected_one() -> None:
    scores = make_scores(get_loss("rise", nll_weight=0.5))
    more = gradient(get_loss("rise", nll_weight=0.5), scores) - gradient(get_loss("rise"), scores)
    per_token = -0.5 / scores.lengths[:, :1]
    torch.testing.assert_close(more[:, 0], per_token * scores.mask[:, 0])
    assert not more[:, 1].any()


def test_lengths_are_needed_for_the_nll_only() -> None:
    assert get_loss("rise").needs == {Need.REFERENCE}
    assert get_loss("rise", nll_weight=0.1).needs == {Need.REFERENCE, Need.LENGTHS}


@pytest.mark.parametrize("title", PROPERTIES)
def test_the_form_with_nll_keeps_the_contract(title: str) -> None:
    PROPERTIES[title](get_loss("rise", nll_weight=0.5))
