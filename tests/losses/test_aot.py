from __future__ import annotations

from typing import Any

import pytest
import torch

from prefopt import StepContext, get_loss
from prefopt.errors import ConfigError
from prefopt.testing import make_scores
from tests.losses.vectors import PRECISIONS, cases, leaves, tensor


@pytest.mark.parametrize("case", cases("aot", paired=True), ids=lambda case: case["id"])
def test_worked_values_which_are_given_in_sorted_order(case: dict[str, Any]) -> None:
    loss = get_loss("aot", beta=case["params"]["beta"])
    for dtype, rtol, atol in PRECISIONS:
        _, scores = leaves(case["inputs"], dtype)
        losses = loss(scores, StepContext()).losses
        order = (scores.sums[:, 0] - scores.sums[:, 1]).argsort(stable=True)
        torch.testing.assert_close(losses[order], tensor(case["expected_loss"], dtype), rtol=rtol, atol=atol)
        torch.testing.assert_close(losses.mean(), tensor(case["expected_scalar"], dtype), rtol=rtol, atol=atol)


def test_equals_smoothed_dpo_for_a_batch_of_one_and_where_it_is_called_plainly() -> None:
    plain = get_loss("dpo", beta=0.01, label_smoothing=0.2)
    loss = get_loss("aot", label_smoothing=0.2)
    one, many = make_scores(plain, prompts=1), make_scores(plain)
    torch.testing.assert_close(loss(one, StepContext()).losses, plain(one).losses)
    for context in (None, StepContext(training=False)):
        torch.testing.assert_close(loss(many, context).losses, plain(many).losses)


def test_a_pair_is_compared_with_the_reference_margin_of_its_rank() -> None:
    scores = make_scores(get_loss("dpo"), prompts=9)
    losses = get_loss("aot", beta=0.5)(scores, StepContext()).losses
    u = (scores.sums[:, 0] - scores.sums[:, 1]).tolist()
    v = sorted((scores.reference_sums[:, 0] - scores.reference_sums[:, 1]).tolist())
    for value, loss in zip(u, losses.tolist(), strict=True):
        partner = v[sorted(u).index(value)]
        assert loss == pytest.approx(-torch.nn.functional.logsigmoid(torch.tensor(0.5 * (value - partner))).item())


@pytest.mark.parametrize("name", ["aot", "aot_unpaired", "dr_dpo"])
def test_weightings_of_single_pairs_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'wpo' does not go with loss '{name}': its prompts are not weighed one by"):
        get_loss(name, modify=["wpo"])
