from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from prefopt import ConfigError, Draw, Scores, StepContext, get_loss
from prefopt.errors import DataError
from prefopt.losses.sampo import sampled
from prefopt.testing import make_scores
from tests.losses.vectors import cases, check_case, leaves


class Picking(Draw):
    """Numbers that make the sampler take the given positions."""

    def __init__(self, inputs: dict[str, Any], width: int) -> None:
        numbers = torch.full((len(inputs["chosen_indices"]), width, 2), 0.1, dtype=torch.float64)
        for side, name in enumerate(("chosen_indices", "rejected_indices")):
            for row, places in enumerate(inputs[name]):
                numbers[row, places, side] = 0.9
        self.numbers = numbers

    def __call__(self, ids: Any, count: int) -> torch.Tensor:
        return self.numbers.flatten(1)


@pytest.mark.parametrize("case", cases("sampo"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss, context = get_loss("sampo", **case["params"]), None
    _, scores = leaves(case["inputs"], torch.float64)
    if case["params"]["mode"] == "sample":
        context = StepContext(draw=Picking(case["inputs"], scores.policy.shape[-1]))
    check_case(loss, case, context=context)
    metrics = loss(scores, context).metrics
    for side in ("chosen", "rejected"):
        expected = torch.tensor(case["expected_aux"][f"{side}_logratios"], dtype=torch.float64)
        torch.testing.assert_close(metrics[f"sampo/{side}"], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", ["sample", "expected", "average"])
def test_equals_dpo_where_both_responses_have_the_same_length(mode: str) -> None:
    scores = make_scores(get_loss("dpo"))
    even = Scores(policy=scores.policy, reference=scores.reference, mask=torch.ones_like(scores.mask), ids=scores.ids)
    for context in (None, StepContext()):
        torch.testing.assert_close(get_loss("sampo", mode=mode)(even, context).losses, get_loss("dpo")(even).losses)


def test_as_many_scored_tokens_are_drawn_as_the_shorter_response_has() -> None:
    scores = make_scores(get_loss("sampo"), prompts=50, tokens=11)
    kept = sampled(scores.mask, Draw(), scores.ids)
    shorter = scores.mask.sum(-1).amin(-1, keepdim=True)
    assert (kept.sum(-1) == shorter).all()
    assert not kept[~scores.mask].any()


def test_the_expected_form_is_the_mean_of_the_draws() -> None:
    scores = make_scores(get_loss("sampo"), prompts=3, tokens=9)
    total = torch.zeros(3, 2, dtype=torch.float64)
    draws = 4000
    assert scores.reference is not None
    for step in range(draws):
        kept = sampled(scores.mask, Draw(step=step), scores.ids)
        total += scores.total((scores.policy - scores.reference).masked_fill(~kept, 0))
    lengths = scores.lengths
    expected = scores.logratios * lengths.amin(-1, keepdim=True) / lengths
    torch.testing.assert_close(total / draws, expected, rtol=0, atol=0.03)


def test_padding_and_batch_mates_do_not_move_a_draw() -> None:
    scores = make_scores(get_loss("sampo"))
    kept = sampled(scores.mask, Draw(seed=5), scores.ids)
    wider = sampled(F.pad(scores.mask, (0, 4)), Draw(seed=5), scores.ids)
    assert scores.ids is not None
    assert torch.equal(wider[..., :7], kept)
    assert torch.equal(sampled(scores.mask[2:3], Draw(seed=5), scores.ids[2:3]), kept[2:3])
    assert not torch.equal(sampled(scores.mask, Draw(seed=6), scores.ids), kept)
    assert not torch.equal(sampled(scores.mask, Draw(seed=5, step=1), scores.ids), kept)


def test_only_drawn_tokens_receive_gradient() -> None:
    scores = make_scores(get_loss("sampo"))
    policy = scores.policy.clone().requires_grad_()
    moved = Scores(policy=policy, reference=scores.reference, mask=scores.mask, ids=scores.ids)
    get_loss("sampo")(moved, StepContext()).losses.sum().backward()
    assert policy.grad is not None
    assert torch.equal(policy.grad != 0, sampled(scores.mask, Draw(), scores.ids))


def test_sums_and_prompts_without_an_id_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs per-token log-probabilities, not sums"):
        get_loss("sampo")(Scores.from_sums(torch.zeros(1, 2), torch.zeros(1, 2), lengths=torch.ones(1, 2)))
    nameless = Scores(torch.zeros(1, 2, 3), torch.ones(1, 2, 3).bool(), reference=torch.zeros(1, 2, 3))
    with pytest.raises(DataError, match="random numbers are keyed by prompt"):
        get_loss("sampo")(nameless, StepContext())
