from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from prefopt import ConfigError, Scores, get_loss
from prefopt.testing import check_loss, make_scores
from tests.losses.drawn import from_ratios, gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry, leaves

DIVERGENCES: list[dict[str, Any]] = [
    {"divergence": "reverse_kl"},
    {"divergence": "forward_kl"},
    {"divergence": "jensen_shannon"},
    {"divergence": "alpha", "alpha": 0.5},
    {"divergence": "alpha", "alpha": 0.9},
]


def options(params: dict[str, Any]) -> dict[str, Any]:
    name = params["divergence"]
    return {**params, "divergence": {"js": "jensen_shannon"}.get(name, name)}


@pytest.mark.parametrize("case", cases("f_dpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss = get_loss("f_dpo", **options(case["params"]))
    check_case(loss, case)
    out = loss(leaves(case["inputs"], torch.float64)[1])
    for side in ("chosen", "rejected"):
        assert out.metrics[f"f_dpo/score_{side}"].tolist() == pytest.approx(case["expected_aux"][f"{side}_scores"])


@pytest.mark.parametrize(
    ("entry", "chosen"),
    [("forward_kl", DIVERGENCES[1]), ("js", DIVERGENCES[2]), ("alpha", DIVERGENCES[3])],
)
def test_shared_batch_values_and_derivatives(entry: str, chosen: dict[str, Any]) -> None:
    check_registry(get_loss("f_dpo", beta=0.1, **chosen), REGISTRY[f"registry/f_dpo_{entry}"])


@on_random_scores("f_dpo")
def test_equals_dpo_under_the_reverse_kl(scores: Scores) -> None:
    same_values_and_gradients(value_of("f_dpo", divergence="reverse_kl"), value_of("dpo"), scores)


def test_tends_to_dpo_for_a_small_alpha() -> None:
    scores = make_scores(get_loss("f_dpo"))
    ours = get_loss("f_dpo", divergence="alpha", alpha=1e-9)(scores).losses
    torch.testing.assert_close(ours, get_loss("dpo")(scores).losses, rtol=1e-7, atol=0)


@on_random_scores("f_dpo")
def test_alpha_1_is_the_forward_kl(scores: Scores) -> None:
    ours, theirs = value_of("f_dpo", divergence="alpha", alpha=1), value_of("f_dpo", divergence="forward_kl")
    same_values_and_gradients(ours, theirs, scores)


@pytest.mark.parametrize("chosen", DIVERGENCES, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_scores_are_the_derivatives_of_the_divergence_up_to_a_constant(chosen: dict[str, Any]) -> None:
    case = REGISTRY["fdpo/scores"]
    ratios = torch.tensor(case["inputs"]["ratio_u"], dtype=torch.float64).log()
    name = "_".join(map(str, chosen.values()))
    found = get_loss("f_dpo", **chosen)(from_ratios(ratios.tolist(), [0.0] * 5)).metrics["f_dpo/score_chosen"]
    offset = found - torch.tensor(case["expected"][name], dtype=torch.float64)
    torch.testing.assert_close(offset, offset[:1].expand(5))


@pytest.mark.parametrize("chosen", DIVERGENCES, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_every_divergence_keeps_the_contract(chosen: dict[str, Any]) -> None:
    check_loss("f_dpo", **chosen)


def test_jensen_shannon_margins_cannot_grow_by_the_chosen_response_alone() -> None:
    out = get_loss("f_dpo")(from_ratios([5.0, 50.0, 500.0], [0.0] * 3))
    assert (out.metrics["f_dpo/score_chosen"] <= math.log(2)).all()
    assert out.losses.min().item() >= math.log1p(math.exp(-0.1 * math.log(2))) - 1e-12


@pytest.mark.parametrize("chosen", DIVERGENCES, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_two_responses_far_below_the_reference_are_finite(chosen: dict[str, Any]) -> None:
    """Without a clamp the forward KL is inf - inf here, which is NaN."""
    loss = get_loss("f_dpo", **chosen)
    scores = from_ratios([-200.0, -1e4], [-200.0, -1e4], dtype=torch.float32)
    assert torch.isfinite(loss(scores).losses).all()
    assert torch.isfinite(gradient(loss, scores)).all()


def test_there_is_no_gradient_beyond_the_clamp() -> None:
    scores = from_ratios([-79.0, -81.0], [0.0, 0.0])
    inside, beyond = gradient(get_loss("f_dpo", divergence="forward_kl"), scores)[:, 0, 0].tolist()
    assert inside < 0 == beyond


def test_alpha_beside_another_divergence_is_refused() -> None:
    told = "loss 'f_dpo': alpha has no effect here: only `divergence: alpha` reads it"
    with pytest.raises(ConfigError, match=told):
        get_loss("f_dpo", alpha=0.5)
    with pytest.raises(ConfigError, match=r"alpha must be at most 1; got 1\.5"):
        get_loss("f_dpo", divergence="alpha", alpha=1.5)
    with pytest.raises(ConfigError, match="divergence must be one of 'reverse_kl', 'forward_kl', 'jensen_shannon' or"):
        get_loss("f_dpo", divergence="total_variation")


def test_the_short_name_of_a_divergence_is_taken_and_written_in_full() -> None:
    loss = get_loss("f_dpo", divergence="js")
    assert loss == get_loss("f_dpo", divergence="jensen_shannon")
    assert loss.describe()["divergence"] == "jensen_shannon"


def test_the_reference_moves_every_divergence() -> None:
    scores = make_scores(get_loss("f_dpo"))
    other = dataclasses.replace(scores, reference=scores.reference - 1)
    for chosen in DIVERGENCES:
        loss = get_loss("f_dpo", **chosen)
        assert not torch.allclose(loss(scores).losses, loss(other).losses)
