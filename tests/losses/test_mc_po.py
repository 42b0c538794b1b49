from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from prefopt import ConfigError, Need, Scores, get_loss
from prefopt.context import Draw, StepContext
from prefopt.losses.mc_po import MCPOParams, draw, draw_negatives, kernel_probabilities
from prefopt.testing import make_scores
from tests.losses.drawn import gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.token_vectors import PRECISIONS, token_cases
from tests.losses.vectors import REGISTRY

F64 = torch.float64


def one_and_many(inputs: dict[str, Any], dtype: torch.dtype) -> Scores:
    def block(model: str) -> torch.Tensor:
        chosen, others = inputs[f"{model}_chosen_seq_logps"], inputs[f"{model}_negative_seq_logps"]
        return torch.tensor([[c, *o] for c, o in zip(chosen, others, strict=True)], dtype=dtype)

    return Scores.from_sums(block("policy"), block("ref"))


def candidate_rewards(case: dict[str, Any], beta: float) -> torch.Tensor:
    inputs = case["inputs"]
    policy, reference = (torch.tensor(inputs[f"{m}_candidate_seq_logps"], dtype=F64) for m in ("policy", "ref"))
    return beta * (policy - reference)


# ---------------------------------------------------------------------------------------------------------- the loss


@on_random_scores("dpo")
def test_equals_dpo_for_one_rejected_response(scores: Scores) -> None:
    same_values_and_gradients(value_of("mc_po", beta=0.2), value_of("dpo", beta=0.2), scores)


@pytest.mark.parametrize("case", token_cases("mcpo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss = get_loss("mc_po", beta=case["params"]["beta"], num_negatives=case["params"]["M"])
    for dtype, rtol, atol in PRECISIONS:
        losses = loss(one_and_many(case["inputs"], dtype)).losses
        torch.testing.assert_close(losses, torch.tensor(case["expected_loss"], dtype=dtype), rtol=rtol, atol=atol)


def test_shared_batch_values_and_derivatives() -> None:
    case = REGISTRY["registry/one_vs_many"]
    inputs, expected = case["inputs"], case["expected"]
    ratios = torch.tensor([[inputs["log_ratio_chosen"], *inputs["log_ratio_rejected"]]], dtype=F64)
    loss = get_loss("mc_po", beta=inputs["beta"])
    scores = Scores.from_sums(ratios, torch.zeros_like(ratios))
    assert loss(scores).losses.tolist() == exactly([expected["loss"]])
    assert gradient(loss, scores)[0, 1:, 0].tolist() == exactly(expected["dloss_drejected"])
    there = torch.tensor([[False, True, True, True]])
    drawn = kernel_probabilities(inputs["beta"] * ratios, there)
    assert drawn[0, 1:].tolist() == exactly(expected["sampling_weights"])
    pairs = [
        get_loss("dpo", beta=inputs["beta"])(Scores.from_sums(ratios[:, [0, k]], torch.zeros(1, 2).double())).losses
        for k in (1, 2, 3)
    ]
    assert [float(p) for p in pairs] == exactly(expected["pairwise_losses"])
    mean = float(sum(p * w for p, w in zip(pairs, drawn[0, 1:], strict=True)))
    assert mean == exactly(expected["expected_sampled_pair_loss"])


def exactly(value: Any) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("times", [1, 2, 7])
def test_the_same_rejected_response_m_times_gives_log_one_plus_m_e_to_minus_the_gap(times: int) -> None:
    ratios = torch.tensor([[0.4] + [-0.3] * times]).double()
    found = get_loss("mc_po", beta=0.5)(Scores.from_sums(ratios, torch.zeros_like(ratios))).losses
    assert found.item() == pytest.approx(math.log1p(times * math.exp(-0.5 * 0.7)))


def test_missing_responses_are_not_compared() -> None:
    loss = get_loss("mc_po")
    scores = make_scores(loss)
    mask = scores.mask.clone()
    mask[0, 3], mask[1, 1:] = False, False
    out = loss(replace(scores, mask=mask))
    three = Scores(**{n: getattr(scores, n)[:1, :3] for n in ("policy", "reference", "mask")})
    torch.testing.assert_close(out.losses[:1], loss(three).losses)
    assert out.losses[1] == 0
    assert out.metrics["mc_po/negatives"].tolist() == [2, 0, 3, 3, 3]


# -------------------------------------------------------------------------------------------------------- the kernel


@pytest.mark.parametrize("case", token_cases("mcpo_kernel"), ids=lambda case: case["id"])
def test_worked_probabilities_of_the_kernel(case: dict[str, Any]) -> None:
    expected = case["expected_extra"]
    rewards = candidate_rewards(case, case["params"]["beta"])
    there = torch.ones_like(rewards, dtype=torch.bool)

    def check(found: torch.Tensor, name: str) -> None:
        torch.testing.assert_close(found, torch.tensor(expected[name], dtype=F64), rtol=1e-9, atol=1e-12)

    check(kernel_probabilities(rewards, there), "probs")
    check(kernel_probabilities(candidate_rewards(case, 0.01), there), "probs_beta_0.01")
    at_beta = kernel_probabilities(rewards, there, temperature=case["params"]["beta"])
    check(at_beta, "logratio_softmax_unit_temperature")
    greedy = draw(rewards, there, torch.rand(2, 1), MCPOParams(sampling="argmax"))
    assert greedy.flatten().tolist() == expected["argmax"]


@pytest.mark.parametrize("case", token_cases("mcpo_draw"), ids=lambda case: case["id"])
def test_worked_draws(case: dict[str, Any]) -> None:
    rewards = candidate_rewards(case, case["params"]["beta"])
    there = torch.ones_like(rewards, dtype=torch.bool)
    uniforms = torch.tensor(case["inputs"]["uniforms"]).double().expand(2, 3)
    found = draw(rewards, there, uniforms, MCPOParams(num_negatives=3, replacement=True))
    assert found.tolist() == case["expected_extra"]["indices"]


def test_draws_follow_the_kernel() -> None:
    rewards = torch.tensor([[0.0, 1.0, -1.0, 0.5]])
    there = torch.tensor([[False, True, True, True]])
    uniforms = ((torch.arange(1000) + 0.5) / 1000).view(-1, 1).double()
    drawn = draw(rewards.expand(1000, 4), there.expand(1000, 4), uniforms, MCPOParams(kernel_temperature=0.5))
    share = torch.stack([(drawn == k).double().mean() for k in range(4)])
    torch.testing.assert_close(share, kernel_probabilities(rewards, there, temperature=0.5)[0], atol=1e-3, rtol=0)


def test_uniform_draws_do_not_look_at_rewards() -> None:
    params = MCPOParams(sampling="uniform", num_negatives=2)
    there, uniforms = torch.ones(3, 5, dtype=torch.bool), torch.rand(3, 2, generator=torch.Generator().manual_seed(0))
    one, other = (draw(values, there, uniforms, params) for values in (torch.zeros(3, 5), torch.arange(15).view(3, 5)))
    assert torch.equal(one, other)


def test_without_replacement_no_response_is_drawn_twice_and_none_is_left_in_the_end() -> None:
    there = torch.tensor([[True, False, True, True], [False, True, False, False], [False, False, False, False]])
    for sampling in ("kernel", "uniform", "argmax"):
        params = MCPOParams(sampling=sampling, num_negatives=5)
        uniforms = torch.rand(3, 5, generator=torch.Generator().manual_seed(1))
        found = draw(torch.tensor([[3.0, 9.0, 1.0, 2.0]]).expand(3, 4), there, uniforms, params).tolist()
        assert [sorted(row) for row in found] == [[-1, -1, 0, 2, 3], [-1, -1, -1, -1, 1], [-1] * 5]
        assert found[1] == [1, -1, -1, -1, -1]


def test_argmax_takes_the_highest_in_order() -> None:
    there = torch.tensor([[False, True, True, True]])
    found = draw(torch.tensor([[9.0, 1.0, 3.0, 3.0]]), there, torch.rand(1, 3), MCPOParams(sampling="argmax"))
    assert found.tolist() == [[2, 3, 1]]


@pytest.mark.parametrize("number", [0.0, 1.0 - 1e-17, 1.0])
def test_numbers_at_the_ends_draw_a_candidate(number: float) -> None:
    there = torch.tensor([[False, True, True, False]])
    found = draw(torch.tensor([[0.0, 0.1, 0.2, 0.3]]), there, torch.tensor([[number]]).double(), MCPOParams())
    assert found.item() == (1 if number == 0 else 2)


def test_rewards_of_ten_thousand_nats_draw_as_the_limit_says() -> None:
    there = torch.ones(1, 3, dtype=torch.bool)
    found = kernel_probabilities(torch.tensor([[-1e4, 1e4, 0.0]]), there, temperature=1e-3)
    assert found.tolist() == [[0.0, 1.0, 0.0]]


# ------------------------------------------------------------------------------------------------------- the selection


def selected(step: int = 0, rows: slice = slice(None), **options: Any) -> torch.Tensor:
    scores = replace(make_scores(get_loss("mc_po")), ids=torch.arange(5) + 100)
    names = ("policy", "reference", "mask", "ids")
    part = Scores(**{name: getattr(scores, name)[rows] for name in names})
    return draw_negatives(part, MCPOParams(**options), StepContext(draw=Draw(seed=3, step=step)))


def test_a_prompt_draws_the_same_negative_whoever_stands_beside_it() -> None:
    together = selected()
    assert torch.equal(torch.cat([selected(rows=slice(b, b + 1)) for b in range(5)]), together)
    assert together.shape == (5, 2)
    assert (together[:, 0] == 0).all()
    assert (together[:, 1] > 0).all()


def test_another_step_draws_anew() -> None:
    assert len({tuple(selected(step)[:, 1].tolist()) for step in range(8)}) > 1


@pytest.mark.parametrize("score", ["implicit_reward", "policy_logp", "policy_logp_mean"])
def test_what_makes_a_response_hard_is_what_score_says(score: str) -> None:
    scores = replace(make_scores(get_loss("mc_po")), ids=torch.arange(5))
    values = {"implicit_reward": scores.logratios, "policy_logp": scores.sums, "policy_logp_mean": scores.means}[score]
    found = draw_negatives(scores, MCPOParams(sampling="argmax", score=score), StepContext())
    assert torch.equal(found[:, 1], values[:, 1:].argmax(-1) + 1)


def test_the_chosen_response_is_drawn_only_when_it_is_included() -> None:
    both = {
        bool((selected(step, include_chosen=included)[:, 1] == 0).any()) for step in range(8) for included in (True,)
    }
    assert True in both
    assert not any((selected(step)[:, 1] == 0).any() for step in range(8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": "argmax", "kernel_temperature": 0.5}, "kernel_temperature has no effect here"),
        ({"sampling": "uniform", "score": "policy_logp"}, "score has no effect here"),
        ({"sampling": "argmax", "num_negatives": 2, "replacement": True}, "replacement has no effect here"),
        ({"replacement": True}, "replacement has no effect here: one response is drawn"),
        ({"num_negatives": 0}, "num_negatives must be at least 1 responses; got 0"),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_loss("mc_po", **options)


def test_the_loss_reads_sums_and_a_reference_only() -> None:
    assert get_loss("mc_po").needs == {Need.REFERENCE}
