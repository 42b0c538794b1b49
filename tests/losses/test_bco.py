from __future__ import annotations

import dataclasses

import torch

from prefopt import Scores, StepContext, get_loss
from prefopt.losses.bco_pair import RewardShift
from prefopt.testing import make_scores
from prefopt.testing._make import value_and_gradient


def test_two_labelled_responses_are_a_pair_of_bco_pair() -> None:
    pairs = make_scores(get_loss("dpo"))
    state = RewardShift(torch.tensor(0.2, dtype=torch.float64), 3)
    context = StepContext(state=state, training=False)
    both = get_loss("bco_pair", beta=0.1)(pairs, context).losses
    apart = [
        get_loss("bco")(
            Scores.from_sums(
                pairs.sums[:, side : side + 1],
                pairs.reference_sums[:, side : side + 1],
                labels=torch.full((5,), side == 0),
            ),
            context,
        ).losses
        for side in (0, 1)
    ]
    torch.testing.assert_close(apart[0] + apart[1], both)


def test_desirable_responses_are_pulled_up_and_undesirable_ones_pushed_down() -> None:
    loss = get_loss("bco")
    scores = dataclasses.replace(make_scores(loss), labels=torch.tensor([True, False, True, False, False]))
    for context in (None, StepContext()):
        _, gradient = value_and_gradient(loss, scores, context)
        sign = gradient.sum((1, 2)).sign().tolist()
        assert sign == [-1, 1, -1, 1, 1]


def test_the_threshold_is_the_mean_reward_of_the_first_batch() -> None:
    scores = make_scores(get_loss("bco"))
    state = get_loss("bco", beta=0.5)(scores, StepContext()).state
    torch.testing.assert_close(state.delta, (0.5 * scores.logratios).mean())
