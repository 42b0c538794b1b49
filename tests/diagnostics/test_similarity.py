"""Hidden-state similarity: what must not matter does not, and the edge cases of the definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prefopt.diagnostics import ches, last_inner_product, ln_ches, mean_cosine
from prefopt.diagnostics.similarity import similarity, state_sums

MEASURES = (ches, ln_ches, mean_cosine, last_inner_product)


def drawn(pairs: int = 3, length: int = 9, width: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """States of rows, and masks with prompts of two to four tokens and responses up to the end of the row."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(pairs, length, width, generator=generator, dtype=torch.float64)
    mask = torch.arange(length) >= torch.randint(2, 5, (pairs, 1), generator=generator)
    return hidden, mask


def by_hand(chosen: Tensor, chosen_mask: Tensor, rejected: Tensor, rejected_mask: Tensor) -> list[float]:
    """CHES of each pair with loops, from its two-term definition."""
    found = []
    for b in range(len(chosen)):
        sums = []
        for hidden, mask in ((chosen[b], chosen_mask[b]), (rejected[b], rejected_mask[b])):
            sums.append(sum(hidden[t - 1] for t in range(1, len(hidden)) if mask[t]))
        found.append(float(sums[0] @ sums[1] - sums[0] @ sums[0]))
    return found


def test_equals_the_definition_with_loops() -> None:
    (a, m), (b, n) = drawn(seed=1), drawn(seed=2)
    assert ches(a, m, b, n).tolist() == pytest.approx(by_hand(a, m, b, n), rel=1e-12)


def test_length_normalised_form_is_that_of_mean_states() -> None:
    (a, m), (b, n) = drawn(seed=1), drawn(seed=2)
    plus, minus = state_sums(a, m).means, state_sums(b, n).means
    expected = (plus * minus).sum(-1) - plus.square().sum(-1)
    torch.testing.assert_close(ln_ches(a, m, b, n), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("filler", [0.0, 3.0, float("nan"), float("inf")])
@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_padding_on_either_side_changes_nothing(measure: object, filler: float, side: str) -> None:
    assert callable(measure)
    (a, m), (b, n) = drawn(seed=1), drawn(seed=2)
    expected = measure(a, m, b, n)
    wide = b.new_full((len(b), 4, b.shape[-1]), filler)
    nothing = torch.zeros(len(b), 4, dtype=torch.bool)
    for place in ("left", "right"):
        if side in (place, "both"):
            b = torch.cat([wide, b] if place == "left" else [b, wide], 1)
            n = torch.cat([nothing, n] if place == "left" else [n, nothing], 1)
    assert torch.equal(measure(a, m, b, n), expected)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_pair_does_not_see_the_other_pairs(measure: object) -> None:
    assert callable(measure)
    (a, m), (b, n) = drawn(seed=1), drawn(seed=2)
    alone = torch.cat([measure(a[k : k + 1], m[k : k + 1], b[k : k + 1], n[k : k + 1]) for k in range(3)])
    torch.testing.assert_close(measure(a, m, b, n), alone, rtol=1e-12, atol=1e-12)


def test_states_before_the_prompts_last_and_after_the_last_but_one_token_are_not_used() -> None:
    (a, m), (b, n) = drawn(seed=1), drawn(seed=2)
    expected = ches(a, m, b, n)
    for k in range(len(a)):
        a[k, : int(m[k].int().argmax()) - 1] = 99.0
    a[:, -1] = 99.0
    assert torch.equal(ches(a, m, b, n), expected)


def test_an_end_token_that_is_not_scored_takes_the_last_state_with_it() -> None:
    (a, m), (b, n) = drawn(seed=1), drawn(seed=2)
    open_mask = m.clone()
    open_mask[:, -1] = False
    with_end, without = state_sums(a, m), state_sums(a, open_mask)
    assert torch.equal(with_end.counts, without.counts + 1)
    torch.testing.assert_close(with_end.sums - without.sums, a[:, -2])
    assert not torch.equal(ches(a, m, b, n), ches(a, open_mask, b, n))


def test_equal_responses_score_exactly_0_and_cosine_1() -> None:
    a, m = drawn()
    assert ches(a, m, a, m).tolist() == [0.0] * 3
    assert ln_ches(a, m, a, m).tolist() == [0.0] * 3
    torch.testing.assert_close(mean_cosine(a, m, a, m), torch.ones(3, dtype=torch.float64))


def test_a_response_without_scored_tokens_has_no_score() -> None:
    (a, m), (b, n) = drawn(seed=1), drawn(seed=2)
    n[1] = False
    for measure in MEASURES:
        assert measure(a, m, b, n).isnan().tolist() == [False, True, False]  # type: ignore[operator]


def test_states_of_a_shared_beginning_cancel_in_the_difference_alone() -> None:
    """CHES = <P + a, b - a> with P the shared beginning's sum."""
    a, b = drawn(seed=1)[0], drawn(seed=2)[0]
    shared = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    width = a.shape[1]
    head = torch.ones(3, 1, dtype=torch.bool), torch.ones(3, 4, dtype=torch.bool)

    def behind(hidden: Tensor) -> tuple[Tensor, Tensor]:
        """A prompt token, the shared response tokens, then the row's own with all of them scored."""
        joined = torch.cat([shared, hidden], 1)
        return joined, torch.cat([~head[0], head[1], torch.ones(3, width - 1, dtype=torch.bool)], 1)

    p, sums = shared.sum(1), [hidden[:, :-1].sum(1) for hidden in (a, b)]
    expected = ((p + sums[0]) * (sums[1] - sums[0])).sum(-1)
    torch.testing.assert_close(ches(*behind(a), *behind(b)), expected, rtol=1e-12, atol=1e-12)


def test_not_symmetric_and_minus_the_squared_distance_together() -> None:
    (a, m), (b, n) = drawn(seed=1), drawn(seed=2)
    there, back = ches(a, m, b, n), ches(b, n, a, m)
    assert not torch.equal(there, back)
    apart = state_sums(a, m).sums - state_sums(b, n).sums
    torch.testing.assert_close(there + back, -apart.square().sum(-1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_states_are_summed_in_float32(dtype: torch.dtype) -> None:
    """600 states that bfloat16 holds exactly: a sum kept in it would be off by four percent, in float16 infinite."""
    steps, places = torch.arange(601).unsqueeze(1), torch.arange(8)
    chosen = 1 + ((7 * steps + 3 * places) % 8) / 8
    rejected = chosen + ((steps + places) % 2) / 8
    mask = (torch.arange(601) > 0).unsqueeze(0)
    half = [side.unsqueeze(0).to(dtype) for side in (chosen, rejected)]
    found = ches(half[0], mask, half[1], mask)
    assert found.dtype == torch.float64
    assert found.item() == 258750.0


def test_one_sum_serves_every_pair_it_is_part_of() -> None:
    a, m = drawn(pairs=4)
    sums = state_sums(a, m)
    left, right = torch.tensor([0, 0, 2]), torch.tensor([1, 3, 1])
    torch.testing.assert_close(similarity(sums[left], sums[right]).ches, ches(a[left], m[left], a[right], m[right]))


def test_constant_states_score_the_length_gap_and_nothing_when_normalised() -> None:
    hidden = torch.ones(1, 8, 4)
    short, long = torch.arange(8) > 4, torch.arange(8) > 1
    assert ches(hidden, short.unsqueeze(0), hidden, long.unsqueeze(0)).item() == 4 * 3 * (6 - 3)
    assert ln_ches(hidden, short.unsqueeze(0), hidden, long.unsqueeze(0)).item() == 0
