from __future__ import annotations

from typing import Any

import pytest
import torch

from prefopt import Draw, Scores, StepContext, get_loss
from prefopt.errors import ConfigError
from prefopt.losses.beta_dpo import BetaDPOParams, GapStatistics, drawn, gumbel, log_weights
from prefopt.testing import make_scores
from tests.losses.vectors import REGISTRY, cases, check_case, leaves


class Given(Draw):
    """Uniform numbers whose Gumbel numbers are the given ones."""

    def __init__(self, noise: list[float]) -> None:
        self.noise = torch.tensor(noise, dtype=torch.float64)

    def __call__(self, ids: Any, count: int) -> torch.Tensor:
        return torch.exp(-torch.exp(-self.noise)).unsqueeze(-1)


def statistics(values: dict[str, float]) -> GapStatistics:
    return GapStatistics(*(torch.tensor(value, dtype=torch.float64) for value in values.values()))


def keeping(kept: list[int], count: int) -> list[float]:
    """Noise that makes the filter keep these pairs, whatever their weights."""
    return [30.0 if number in kept else -3.0 for number in range(count)]


def at(case: dict[str, Any]) -> tuple[Any, StepContext]:
    params, inputs = dict(case["params"]), case["inputs"]
    training = params.pop("training", True)
    if params["keep_ratio"] == 1:
        del params["std_floor"]
    noise = inputs.get("gumbel") or keeping(inputs["kept_indices"], len(inputs["policy_chosen_logps"]))
    context = StepContext(draw=Given(noise), state=statistics(inputs["state"]), training=training)
    return get_loss("beta_dpo", **params), context


@pytest.mark.parametrize("case", cases("beta_dpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss, context = at(case)
    check_case(loss, case, context=context, by_mean=True)
    _, scores = leaves(case["inputs"], torch.float64)
    out, aux = loss(scores, context), case["expected_aux"]
    if "beta_dpo/beta" in out.metrics:
        for name, key in (("beta", "beta_used"), ("gap_mean", "gap_mean"), ("gap_std", "gap_std")):
            expected = torch.full_like(out.losses, aux[key])
            torch.testing.assert_close(out.metrics[f"beta_dpo/{name}"], expected, rtol=1e-9, atol=1e-12)
        kept = out.metrics["beta_dpo/kept"].bool()
        assert kept.tolist() == [bool(value) for value in aux["mask"]]
        per_pair = out.losses[kept] * int(kept.sum()) / len(kept)
        expected = torch.tensor(case["expected_loss"], dtype=torch.float64)[kept]
        torch.testing.assert_close(per_pair, expected, rtol=1e-9, atol=1e-12)
        close = {"rtol": 1e-9, "abs": 1e-12}
        gaps = scores.logratios[:, 0] - scores.logratios[:, 1]
        assert gaps[kept].mean().item() == pytest.approx(aux["kept_gap_mean"], rel=close["rtol"], abs=close["abs"])


def test_the_larger_worked_batch() -> None:
    case = REGISTRY["batch/beta_dpo"]
    inputs, expected = case["inputs"], case["expected"]
    gap = torch.tensor(inputs["gap"], dtype=torch.float64)
    scores = Scores.from_sums(torch.stack([gap, torch.zeros_like(gap)], -1), torch.zeros(len(gap), 2).double())
    loss = get_loss(
        "beta_dpo",
        beta=inputs["beta"],
        alpha=inputs["a"],
        momentum=inputs["momentum"],
        keep_ratio=1 - inputs["filter_rate"],
        beta_min=inputs["beta_min"],
    )
    context = StepContext(draw=Given(keeping(inputs["kept_indices"], len(gap))), state=statistics(inputs["state"]))
    out = loss(scores, context)
    close = {"rtol": 1e-9, "atol": 1e-12}
    torch.testing.assert_close(out.state.gap_mean.item(), expected["new_state"]["mean"], **close)
    torch.testing.assert_close(out.state.gap_std.item(), expected["new_state"]["std"], **close)
    torch.testing.assert_close(out.metrics["beta_dpo/beta"][0].item(), expected["beta_used"], **close)
    kept = out.metrics["beta_dpo/kept"].bool()
    assert int(kept.sum()) == expected["n_keep"]
    per_pair = out.losses[kept] * expected["n_keep"] / len(gap)
    torch.testing.assert_close(per_pair, torch.tensor(expected["pair_losses"], dtype=torch.float64)[kept], **close)
    torch.testing.assert_close(out.losses.mean().item(), expected["value"], **close)
    weights = kept.double() / kept.sum()
    torch.testing.assert_close(weights, torch.tensor(expected["pair_weights"], dtype=torch.float64), **close)
    torch.testing.assert_close(gap[kept].mean().item(), expected["mean_gap_kept"], **close)
    chances = torch.exp(log_weights(gap, out.state, loss.params))
    torch.testing.assert_close(chances, torch.tensor(expected["sampling_weights"], dtype=torch.float64), **close)


def test_equals_dpo_when_beta_is_fixed_and_all_pairs_are_kept() -> None:
    scores = make_scores(get_loss("dpo"))
    found = get_loss("beta_dpo", alpha=0.0, keep_ratio=1.0)(scores, StepContext())
    torch.testing.assert_close(found.losses, get_loss("dpo")(scores).losses)


def test_plainly_and_in_evaluation_it_is_dpo_with_the_base_beta() -> None:
    scores = make_scores(get_loss("dpo"))
    expected = get_loss("dpo", beta=0.2)(scores).losses
    state = statistics({"gap_mean": 5.0, "gap_std": 1.0})
    for context in (None, StepContext(training=False, state=state)):
        torch.testing.assert_close(get_loss("beta_dpo", beta=0.2)(scores, context).losses, expected)


def test_the_filter_keeps_pairs_as_often_as_draws_without_replacement_do() -> None:
    gaps = torch.tensor([0.0, 0.5, 1.0, 3.0], dtype=torch.float64)
    state, params = statistics({"gap_mean": 0.0, "gap_std": 1.0}), BetaDPOParams(keep_ratio=0.5)
    uniform = Draw(seed=3)(torch.arange(20_000), len(gaps))
    kept = torch.stack([drawn(gaps, state, gumbel(row), params) for row in uniform]).double().mean(0)
    weights = torch.exp(-0.5 * gaps.square())
    first = weights / weights.sum()
    both = first.clone()  # of two draws: the first, or the second after another first
    for j, p in enumerate(first):
        rest = weights.clone()
        rest[j] = 0
        both += p * rest / rest.sum()
    torch.testing.assert_close(kept, both, rtol=0, atol=0.015)


def test_weights_that_underflow_still_keep_as_many_pairs() -> None:
    gaps = torch.tensor([0.0, 1e3, 2e3, 4e3])
    kept = drawn(gaps, GapStatistics(), torch.zeros(4), BetaDPOParams(keep_ratio=0.5, std_floor=1e-3))
    assert kept.tolist() == [True, True, False, False]


def test_a_share_of_ninety_in_a_hundred_is_ninety() -> None:
    kept = drawn(torch.zeros(100), GapStatistics(), torch.arange(100.0), BetaDPOParams(keep_ratio=0.9))
    assert int(kept.sum()) == 90


def test_the_floor_of_the_deviation_decides_when_all_gaps_are_equal() -> None:
    gaps = torch.tensor([1.0, 1.0, 1.0 + 1e-4])
    noise, state = torch.tensor([0.1, 0.0, 0.2]), GapStatistics(torch.tensor(1.0), torch.tensor(0.0))
    wide = drawn(gaps, state, noise, BetaDPOParams(keep_ratio=0.4, std_floor=1.0))
    narrow = drawn(gaps, state, noise, BetaDPOParams(keep_ratio=0.4, std_floor=1e-6))
    assert wide.tolist() == [False, False, True]
    assert narrow.tolist() == [True, False, False]


def test_a_batch_of_one_does_not_poison_the_statistics() -> None:
    scores = make_scores(get_loss("dpo"), prompts=1)
    state = get_loss("beta_dpo")(scores, StepContext()).state
    assert torch.isfinite(state.gap_mean)
    assert state.gap_std == 0


def test_a_floor_that_nothing_reads_is_refused() -> None:
    with pytest.raises(ConfigError, match="std_floor has no effect here: only the filter reads it, and keep_ratio 1"):
        get_loss("beta_dpo", keep_ratio=1.0, std_floor=1e-3)
