from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from prefopt import ConfigError, DataError, Scores, get_loss
from prefopt.losses.cdpo import contrast_scores
from prefopt.testing import PROPERTIES, make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.token_vectors import PRECISIONS, check_token_case, pair_scores, token_cases


def token_scores(inputs: dict[str, Any], dtype: torch.dtype) -> torch.Tensor:
    rejected = torch.tensor(inputs["rejected_scores"], dtype=dtype)
    chosen = torch.tensor(inputs["chosen_scores"], dtype=dtype) if "chosen_scores" in inputs else rejected * torch.nan
    return torch.stack([chosen, rejected], 1)


@on_random_scores("cdpo")
def test_equals_dpo_where_every_score_is_zero(scores: Scores) -> None:
    zero = replace(scores, token_scores=torch.zeros_like(scores.policy))
    same_values_and_gradients(value_of("cdpo", beta=0.2), value_of("dpo", beta=0.2), zero)


@on_random_scores("cdpo", only_neg=False)
def test_equals_dpo_where_no_token_has_a_score(scores: Scores) -> None:
    none = replace(scores, token_scores=torch.full_like(scores.policy, torch.nan))
    same_values_and_gradients(value_of("cdpo", beta=0.2), value_of("dpo", beta=0.2), none)


@pytest.mark.parametrize("case", token_cases("cdpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    check_token_case(get_loss("cdpo", **case["params"]), case, token_scores=token_scores)


@pytest.mark.parametrize("case", token_cases("cdpo_ce_score"), ids=lambda case: case["id"])
def test_contrast_scores_of_the_toy_vocabulary(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    for dtype, rtol, atol in PRECISIONS:
        right, wrong = (torch.tensor(inputs[f"{kind}_logits"], dtype=dtype) for kind in ("positive", "negative"))
        found = contrast_scores(right, wrong, torch.tensor(inputs["labels"]), contrast=case["params"]["ce_beta"])
        wanted = torch.tensor(case["expected_extra"]["scores"], dtype=dtype)
        torch.testing.assert_close(found, wanted, rtol=rtol, atol=atol)


@pytest.mark.parametrize("case", token_cases("cdpo_released_positionwise"), ids=lambda case: case["id"])
def test_the_released_trainer_compares_positions_and_this_loss_does_not(case: dict[str, Any]) -> None:
    _, scores = pair_scores(case["inputs"], torch.float64, token_scores=token_scores(case["inputs"], torch.float64))
    ratios = (scores.policy - scores.reference).masked_fill(~scores.mask, 0)
    z = case["params"]["beta"] * (ratios[:, 0] - (1 - scores.token_scores[:, 1]) * ratios[:, 1])
    theirs = -F.logsigmoid(z.masked_fill(torch.isnan(z), 0)).mean(-1)
    torch.testing.assert_close(theirs, torch.tensor(case["expected_loss"], dtype=torch.float64))
    ours = get_loss("cdpo", **case["params"])(scores).losses
    assert ((ours - theirs).abs() > 1e-3).all()


def test_only_critical_tokens_of_the_rejected_response_are_pushed_down() -> None:
    loss = get_loss("cdpo")
    scores = make_scores(loss)
    known = replace(scores, token_scores=torch.ones_like(scores.policy))
    found = gradient(loss, known)
    assert not found[:, 1].any()
    assert found[:, 0][scores.mask[:, 0]].all()


@pytest.mark.parametrize("junk", [torch.nan, torch.inf, 1e30])
def test_scores_in_padding_are_not_read(junk: float) -> None:
    for only_neg in (True, False):
        loss = get_loss("cdpo", only_neg=only_neg)
        scores = make_scores(loss)
        dirty = replace(scores, token_scores=scores.token_scores.masked_fill(~scores.mask, junk))
        for before, after in ((loss(scores), loss(dirty)),):
            assert torch.equal(before.losses, after.losses)
            assert torch.equal(before.metrics["cdpo/critical"], after.metrics["cdpo/critical"])


def test_conservative_dpo_is_pointed_to() -> None:
    with pytest.raises(ConfigError, match="write `name: dpo` with label_smoothing"):
        get_loss("cdpo", label_smoothing=0.1)


@pytest.mark.parametrize("title", PROPERTIES)
def test_the_two_sided_form_keeps_the_contract(title: str) -> None:
    PROPERTIES[title](get_loss("cdpo", only_neg=False))


def test_chosen_tokens_that_nobody_scored_are_no_silent_weight_of_one() -> None:
    loss = get_loss("cdpo", only_neg=False)
    scores = make_scores(loss)
    assert scores.token_scores is not None
    given = scores.token_scores.clone()
    given[1, 0] = float("nan")
    unscored = replace(scores, token_scores=given)
    with pytest.raises(DataError, match="chosen responses of rows 1 of the batch have no token scores"):
        loss(unscored)
    get_loss("cdpo")(unscored)
