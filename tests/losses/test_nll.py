from __future__ import annotations

import torch

from prefopt import Scores, StepContext, get_loss
from prefopt.losses import Objective
from prefopt.losses._math import chosen_nll
from prefopt.testing import make_scores
from tests.losses.vectors import REGISTRY


def test_worked_values_per_response() -> None:
    rows = REGISTRY["registry/inputs"]["inputs"]["policy_chosen_tokens"]
    width = max(map(len, rows))
    policy = torch.tensor([[row + [0.0] * (width - len(row))] for row in rows], dtype=torch.float64)
    mask = torch.arange(width) < torch.tensor([[len(row)] for row in rows]).unsqueeze(-1)
    expected = REGISTRY["registry/nll_terms"]["expected"]["mean_per_response"]
    torch.testing.assert_close(
        get_loss("nll")(Scores(policy=policy, mask=mask)).losses, torch.tensor(expected, dtype=torch.float64)
    )


def test_beside_a_pair_loss_it_reads_the_chosen_response_only() -> None:
    scores = make_scores(get_loss("dpo"))
    alone = Scores(policy=scores.policy[:, :1], mask=scores.mask[:, :1])
    torch.testing.assert_close(get_loss("nll")(scores).losses, get_loss("nll")(alone).losses)


def test_a_weighted_sum_with_dpo_adds_up_and_reports_its_parts() -> None:
    dpo, nll = get_loss("dpo"), get_loss("nll")
    scores = make_scores(dpo)
    both = Objective.of(dpo, nll, weights=[1.0, 0.5])(scores)
    torch.testing.assert_close(both.losses, dpo(scores).losses + 0.5 * nll(scores).losses)
    torch.testing.assert_close(both.parts["nll"], nll(scores).losses)
    torch.testing.assert_close(both.rewards, dpo(scores).rewards)


def test_gradient_reaches_each_token_of_a_response_equally() -> None:
    scores = make_scores(get_loss("nll"))
    policy = scores.policy.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(get_loss("nll")(Scores(policy=policy, mask=scores.mask)).losses.sum(), policy)
    torch.testing.assert_close(gradient, -(scores.mask / scores.lengths.unsqueeze(-1)))


def test_the_four_normalisations_in_use_are_told_apart() -> None:
    rows = REGISTRY["registry/inputs"]["inputs"]["policy_chosen_tokens"]
    width = max(map(len, rows))
    policy = torch.tensor([[row + [0.0] * (width - len(row))] for row in rows], dtype=torch.float64)
    mask = torch.arange(width) < torch.tensor([[len(row)] for row in rows]).unsqueeze(-1)
    scores, expected = Scores(policy=policy, mask=mask), REGISTRY["registry/nll_terms"]["expected"]
    found = {
        "sum_per_response": -scores.sums[:, 0],
        "mean_per_response": get_loss("nll")(scores).losses,
        "mean_over_pairs_of_sum": -scores.sums[:, 0].mean(),
        "mean_over_pairs_of_mean": get_loss("nll")(scores).losses.mean(),
        "token_mean_over_batch": chosen_nll(scores, "batch_tokens", StepContext()).mean(),
    }
    assert found.keys() == expected.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, torch.tensor(expected[name], dtype=torch.float64), rtol=1e-9, atol=1e-12)
