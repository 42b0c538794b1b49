"""Every worked value of the step- and token-level sheets is reproduced, and nothing is left lying."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from prefopt import Scores, get_loss
from prefopt.context import StepContext
from tests.losses.token_vectors import PRECISIONS, SIDES, TOKEN, check_token_case, pair_scores, token_cases

TESTS = Path(__file__).parents[1]


def test_every_case_is_asked_for_by_a_test() -> None:
    text = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    asked = set(re.findall(r'parametrize\("case", token_cases\("(\w+)"\)', text))
    assert {case["method"] for case in TOKEN} == asked


@pytest.mark.parametrize("case", token_cases("irpo"), ids=lambda case: case["id"])
def test_irpo(case: dict[str, Any]) -> None:
    params = {name: case["params"][name] for name in ("alpha", "beta")}
    check_token_case(get_loss("irpo", nll_norm="sequence", **params), case)


@pytest.mark.parametrize("case", token_cases("irpo_batch_token_nll"), ids=lambda case: case["id"])
def test_irpo_with_the_nll_over_the_batch(case: dict[str, Any]) -> None:
    loss = get_loss("irpo", nll_norm="batch_tokens", **case["params"])
    for dtype, rtol, _ in PRECISIONS:
        _, scores = pair_scores(case["inputs"], dtype)
        assert loss(scores, StepContext()).losses.mean().item() == pytest.approx(case["expected_mean"], rel=rtol)


@pytest.mark.parametrize("case", token_cases("irpo_first_version"), ids=lambda case: case["id"])
def test_the_first_version_of_irpo_is_a_sum_that_reads_the_prompt(case: dict[str, Any]) -> None:
    """`irpo` is the current version; scores hold no prompt tokens, so the first one cannot be had from them."""
    _, scores = pair_scores(case["inputs"], torch.float64)
    prompt = torch.tensor(case["inputs"]["prompt_logps"], dtype=torch.float64)
    nll = -(prompt.sum(-1) + scores.sums[:, 0]) / (prompt.shape[-1] + scores.lengths[:, 0])
    first = nll + case["params"]["alpha"] * get_loss("dpo", beta=case["params"]["beta"])(scores).losses
    torch.testing.assert_close(first, torch.tensor(case["expected_loss"], dtype=torch.float64))
    current = get_loss("irpo", **case["params"])(scores).losses
    assert ((current - first).abs() > 1e-3).all()


def distributions(inputs: dict[str, Any], dtype: torch.dtype) -> Scores:
    """Token log-probabilities and KL(reference || policy) per position, from the case's logits."""
    policy, reference = (
        torch.stack([torch.tensor(inputs[f"{m}_{side}_logits"], dtype=dtype) for side in SIDES], 1).log_softmax(-1)
        for m in ("policy", "ref")
    )
    labels = torch.stack([torch.tensor(inputs[f"{side}_labels"]) for side in SIDES], 1).unsqueeze(-1)
    return Scores(
        policy=policy.gather(-1, labels).squeeze(-1),
        reference=reference.gather(-1, labels).squeeze(-1),
        kl=(reference.exp() * (reference - policy)).sum(-1),
        mask=torch.stack([torch.tensor(inputs[f"{side}_mask"]) for side in SIDES], 1) > 0,
    )


def check_distributions(name: str, case: dict[str, Any]) -> None:
    for dtype, rtol, atol in PRECISIONS:
        losses = get_loss(name, **case["params"])(distributions(case["inputs"], dtype)).losses
        torch.testing.assert_close(losses, torch.tensor(case["expected_loss"], dtype=dtype), rtol=rtol, atol=atol)


@pytest.mark.parametrize("case", token_cases("tdpo1"), ids=lambda case: case["id"])
def test_tdpo1(case: dict[str, Any]) -> None:
    check_distributions("tdpo1", case)


@pytest.mark.parametrize("case", token_cases("tdpo2"), ids=lambda case: case["id"])
def test_tdpo2(case: dict[str, Any]) -> None:
    check_distributions("tdpo2", case)
