"""Measures on token ids, movements, next-token distributions and losses: what they claim, on random numbers."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from prefopt import ConfigError, Need, Scores, get_loss, loss_names
from prefopt.diagnostics.branch import branch_place, branch_point
from prefopt.diagnostics.coefficients import gradient_coefficients
from prefopt.diagnostics.displacement import QUADRANTS, movement, normalised, quadrant_counts
from prefopt.diagnostics.filters import keep_lowest, quantile_window, ranks, spearman
from prefopt.diagnostics.greedy import greedy_track, pushed_down, track_of
from prefopt.diagnostics.head_gradients import TokenGradients, interference, nthr
from prefopt.diagnostics.information import did_entropy, token_did
from prefopt.diagnostics.pairs import compare_tokens
from prefopt.diagnostics.positions import position_changes
from prefopt.diagnostics.residual import residual_energy
from prefopt.testing import make_scores

IDS = st.lists(st.integers(0, 3), max_size=8)


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---------------------------------------------------------------------------------------------------- token ids


def levenshtein(a: list[int], b: list[int]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        new = [i]
        for j, y in enumerate(b, start=1):
            new.append(min(row[j] + 1, new[-1] + 1, row[j - 1] + (x != y)))
        row = new
    return row[-1]


@given(IDS, IDS)
def test_edit_distance_is_that_of_the_textbook(a: list[int], b: list[int]) -> None:
    found = compare_tokens(a, b)
    assert found.edit_distance == levenshtein(a, b)
    assert found.normalized == pytest.approx(levenshtein(a, b) / max(len(a), len(b), 1))
    assert found.length_gap == len(a) - len(b)
    assert a[: found.common_prefix] == b[: found.common_prefix]
    assert (found.first_difference is None) == (a == b)
    assert not found.capped


def test_a_long_response_is_compared_up_to_the_cap_and_says_so() -> None:
    found = compare_tokens([1] * 50, [1] * 10 + [2] * 40, longest=20)
    assert found.capped
    assert (found.edit_distance, found.normalized) == (10, 0.5)
    assert (found.common_prefix, found.length_gap) == (10, 0), "these need no cap"
    assert not compare_tokens([1] * 50, [1] * 50, longest=20).capped, "equal responses are 0 apart at any length"


@given(IDS, IDS)
def test_the_branch_is_the_first_place_where_both_have_a_token_and_differ(a: list[int], b: list[int]) -> None:
    place = branch_place(a, b)
    if place is None:
        shorter, longer = sorted((a, b), key=len)
        assert longer[: len(shorter)] == shorter
    else:
        assert a[: place.position] == b[: place.position]
        assert (a[place.position], b[place.position]) == (place.chosen, place.rejected)
        assert place.chosen != place.rejected


def test_with_end_tokens_a_beginning_parts_at_the_choice_to_end() -> None:
    end = 9
    place = branch_place([1, 2, end], [1, 2, 3, end])
    assert place is not None
    assert (place.position, place.chosen, place.rejected) == (2, end, 3)


# ---------------------------------------------------------------------------------------------------- movement


def test_the_three_normalisations_weigh_responses_and_tokens() -> None:
    moved, tokens = torch.tensor([-1.0, 3.0]).double(), torch.tensor([1, 5])
    found = normalised(moved, tokens)
    assert found.per_response.item() == 1.0
    assert found.per_token.item() == pytest.approx(2 / 6)
    assert found.mean_per_token.item() == pytest.approx((-1 + 0.6) / 2)


def test_every_pair_is_in_one_quadrant_and_ties_in_none_of_the_four() -> None:
    values = torch.tensor([-1.0, 0.0, 1.0])
    policy = torch.cartesian_prod(values, values).unsqueeze(-1)  # [9, 2, 1]
    found = movement(policy, torch.zeros_like(policy), torch.ones_like(policy, dtype=torch.bool))
    counts = quadrant_counts(found.quadrants)
    assert counts == {"up_down": 1, "down_down": 1, "up_up": 1, "down_up": 1, "flat": 5}
    assert QUADRANTS[int(found.quadrants[0])] == "down_down"
    assert int(found.both_dropped.sum()) == 1
    assert int(found.chosen_dropped.sum()) == 3


def test_a_movement_is_taken_token_by_token_and_outside_the_mask_not_at_all() -> None:
    start = torch.full((1, 2, 1000), -70.0)
    policy = start + 1e-5
    mask = torch.ones(1, 2, 1000, dtype=torch.bool)
    mask[0, 1, 500:] = False
    policy[0, 1, 500:] = float("nan")
    found = movement(policy, start, mask)
    step = float(policy[0, 0, 0] - start[0, 0, 0])
    assert found.chosen.item() == pytest.approx(1000 * step, rel=1e-5)
    assert found.rejected.item() == pytest.approx(500 * step, rel=1e-5)
    assert (found.chosen_tokens.item(), found.rejected_tokens.item()) == (1000, 500)


def test_lazy_displacement_is_a_drop_without_slack_and_more_with_some() -> None:
    policy = torch.tensor([[[0.0], [0.0]], [[-0.1], [0.0]], [[0.05], [0.0]]])
    found = movement(policy, torch.zeros_like(policy), torch.ones_like(policy, dtype=torch.bool))
    assert torch.equal(found.lazy(), found.chosen_dropped)
    assert found.lazy(eps=0.1).tolist() == [True, True, True]


# ---------------------------------------------------------------------------------------------------- distributions


@given(st.integers(0, 50), st.floats(0.01, 5))
def test_pushing_a_token_down_lowers_it_and_raises_the_likeliest_other(seed: int, eta: float) -> None:
    p = (3 * uniform(6, seed=seed)).softmax(-1)
    for token in range(6):
        after = pushed_down(p, torch.tensor(token), eta=eta)
        others = p.clone()
        others[token] = 0
        assert after[token] < p[token]
        assert after[others.argmax()] > p[others.argmax()]
        assert after.sum().item() == pytest.approx(1)


def test_one_pushed_step_is_one_step_of_gradient_ascent_on_minus_the_log_probability() -> None:
    logits = uniform(5).requires_grad_()
    (slope,) = torch.autograd.grad(logits.log_softmax(-1)[2], logits)
    after = (logits - 0.7 * slope).softmax(-1)
    torch.testing.assert_close(pushed_down(logits.softmax(-1).detach(), torch.tensor(2), eta=0.7), after.detach())


def test_what_the_peak_leaves_keeps_its_digits() -> None:
    logits = torch.tensor([60.0, 0.0, 0.0], dtype=torch.float64)
    found = greedy_track(logits)
    assert found.log_rest.item() == pytest.approx(-60 + torch.tensor(2.0).log().item(), rel=1e-9)
    assert found.logp.exp().item() == 1.0
    assert track_of(logits, found.token).item() == found.logp.item()


def test_equal_models_have_changed_nowhere() -> None:
    logits, labels = uniform(4, 7), torch.tensor([0, 3, 6, 2])
    found = position_changes(logits, logits, labels)
    for name in ("kl", "reverse_kl", "total_variation", "label_probability_change", "label_logp_change", "gain"):
        assert getattr(found, name).tolist() == [0.0] * 4, name
    assert torch.equal(found.entropy, found.start_entropy)


def test_divergences_agree_with_torch_and_bound_each_other() -> None:
    policy, start, labels = uniform(20, 9, seed=1), uniform(20, 9, seed=2), torch.arange(20) % 9
    found = position_changes(policy, start, labels)
    for value, (p, q) in ((found.kl, (policy, start)), (found.reverse_kl, (start, policy))):
        expected = torch.distributions.kl_divergence(
            torch.distributions.Categorical(logits=p), torch.distributions.Categorical(logits=q)
        )
        torch.testing.assert_close(value, expected)
        assert (found.total_variation <= (value / 2).sqrt()).all(), "Pinsker's inequality"
    gains = policy.softmax(-1) - start.softmax(-1)
    order = gains.argsort(-1, descending=True)
    assert torch.equal(order.gather(-1, found.label_rank.unsqueeze(-1)).squeeze(-1), labels)


def test_the_mass_at_a_branch_adds_up_to_one() -> None:
    policy, start = uniform(6, 8, seed=1).softmax(-1), uniform(6, 8, seed=2).softmax(-1)
    chosen, rejected = torch.tensor([0, 1, 2, 3, 4, 5]), torch.tensor([1, 2, 3, 4, 5, 6])
    found = branch_point(policy, start, chosen, rejected)
    for when in ("now", "start"):
        parts = [getattr(found, f"{part}_{when}") for part in ("chosen", "rejected", "other")]
        torch.testing.assert_close(sum(parts), torch.ones(6).double())
    assert torch.equal(found.gainer, (policy - start).argmax(-1))
    assert torch.equal(found.gainer_is_third, (found.gainer != chosen) & (found.gainer != rejected))


def test_the_token_distribution_of_information_ignores_the_references_tail() -> None:
    reference = torch.tensor([5.0, 4.0, -20.0], dtype=torch.float64)
    policy = torch.tensor([5.0, 4.0, -1.0], dtype=torch.float64)
    assert token_did(policy, reference)[2] > 0.99, "a token that neither would say"
    inside = token_did(policy, reference, top_p=0.99)
    assert inside[2] == 0
    torch.testing.assert_close(inside[:2], torch.full((2,), 0.5).double())


def test_the_likeliest_token_stays_inside_any_share_of_mass() -> None:
    found = token_did(uniform(4), uniform(4, seed=1), top_p=1e-9)
    assert found.max() == 1


@pytest.mark.parametrize("drawn_from", ["policy", "reference"])
def test_entropy_of_information_is_found_from_many_draws(drawn_from: str) -> None:
    policy, reference = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05]), torch.tensor([0.2, 0.2, 0.3, 0.1, 0.2])
    policy, reference = policy.double(), reference.double()
    q = (policy / reference) / (policy / reference).sum()
    exact = -(q * q.log()).sum().item()
    source = policy if drawn_from == "policy" else reference
    draws = torch.multinomial(source, 4000, replacement=True, generator=torch.Generator().manual_seed(1))
    found = did_entropy(policy.log()[draws], reference.log()[draws], drawn_from=drawn_from, resamples=200)  # type: ignore[arg-type]
    assert found.estimate == pytest.approx(exact, abs=0.05)
    assert found.low < exact < found.high
    assert found.verdict == found.estimate
    assert "length cap 5" in found.describe(longest=5)


def test_no_verdict_where_one_draw_takes_all_the_weight() -> None:
    """Sequences: log-probabilities tens of nats apart."""
    reference = -40 - 30 * torch.rand(32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = did_entropy(reference + 0.1, reference, drawn_from="policy")
    assert found.ess < 8
    assert found.verdict is None
    text = found.describe()
    assert text.startswith("no estimate: 32 draws")
    assert "no length cap" in text


# ---------------------------------------------------------------------------------------------------- gradients


PAIR_LOSSES = [name for name in loss_names() if get_loss(name).responses == "pair"]
OF_SUMS = [name for name in PAIR_LOSSES if get_loss(name).needs <= {Need.REFERENCE, Need.LENGTHS}]


def near_the_start(name: str) -> Scores:
    """Scores away from the kinks that some losses have where policy and reference agree."""
    scores = make_scores(get_loss(name), prompts=4)
    return dataclasses.replace(scores, policy=scores.policy - 0.3)


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_coefficients_are_the_mean_slopes_of_a_responses_tokens(name: str) -> None:
    loss, scores = get_loss(name), near_the_start(name)
    found = gradient_coefficients(loss, scores)
    leaf = scores.policy.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(dataclasses.replace(scores, policy=leaf)).losses.sum(), leaf)
    means = slope.masked_fill(~scores.mask, 0).sum(-1) / scores.lengths
    torch.testing.assert_close(torch.stack([-found.chosen, found.rejected], -1), means)


@pytest.mark.parametrize("name", OF_SUMS)
def test_coefficients_of_losses_on_whole_responses_are_differences_of_their_values(name: str) -> None:
    loss, scores, step = get_loss(name), near_the_start(name), 1e-6
    sums = Scores.from_sums(
        scores.sums, scores.reference_sums if scores.reference is not None else None, lengths=scores.lengths
    )
    found = gradient_coefficients(loss, sums)
    for side, mine in enumerate((-found.chosen, found.rejected)):
        values = []
        for sign in (1, -1):
            moved = sums.policy.clone()
            moved[:, side] += sign * step
            values.append(loss(dataclasses.replace(sums, policy=moved)).losses)
        torch.testing.assert_close(mine, (values[0] - values[1]) / (2 * step), rtol=1e-5, atol=1e-7)


def test_dpo_pulls_both_sides_alike_and_shift_holds_the_rejected_one_less() -> None:
    scores = make_scores(get_loss("dpo"))
    torch.testing.assert_close(gradient_coefficients(get_loss("dpo"), scores).ratio, torch.ones(5).double())
    shifted = gradient_coefficients(get_loss("dpo_shift", lam=0.75), scores).ratio
    torch.testing.assert_close(shifted, torch.full((5,), 0.75).double())


def test_other_than_pairs_have_no_coefficients() -> None:
    with pytest.raises(ConfigError, match="those of pairs; got 4 responses per prompt"):
        gradient_coefficients(get_loss("mc_po"), make_scores(get_loss("mc_po")))


def test_the_scores_are_left_without_gradient() -> None:
    scores = make_scores(get_loss("dpo"))
    scores = dataclasses.replace(scores, policy=scores.policy.requires_grad_())
    gradient_coefficients(get_loss("dpo"), scores)
    assert scores.policy.grad is None


def side(seed: int, count: int, weight: Tensor) -> tuple[TokenGradients, Tensor, Tensor]:
    states = uniform(count, weight.shape[1], seed=seed)
    labels = torch.randint(len(weight), (count,), generator=torch.Generator().manual_seed(seed))
    return TokenGradients.of(states @ weight.T, labels, states), states, labels


def test_head_products_are_those_of_the_gradients_autograd_gives() -> None:
    weight = uniform(11, 4, seed=9).requires_grad_()
    gradients, tokens = [], []
    for seed, count in ((1, 6), (2, 3)):
        made, states, labels = side(seed, count, weight.detach())
        logp = (states @ weight.T).log_softmax(-1).gather(-1, labels.unsqueeze(-1)).sum()
        gradients.append(torch.autograd.grad(logp, weight)[0])
        tokens.append(made)
    found = interference(*tokens)
    torch.testing.assert_close(found.product, (gradients[0] * gradients[1]).sum())
    torch.testing.assert_close(found.chosen_square, gradients[0].square().sum())
    torch.testing.assert_close(found.rejected_square, gradients[1].square().sum())
    assert -1 <= found.cosine.item() <= 1
    torch.testing.assert_close(found.ratio, found.product / found.chosen_square)
    total = nthr([tokens[0]], tokens[1]).scores.sum()
    torch.testing.assert_close(total, found.product)


def test_agreement_of_residuals_lies_between_minus_2_and_2() -> None:
    weight = 5 * uniform(11, 4, seed=9)
    found = side(1, 30, weight)[0].agreement(side(2, 20, weight)[0])
    assert found.abs().max() <= 2


def test_several_chosen_responses_add_their_influence_and_the_lowest_anchor_decides() -> None:
    weight = uniform(11, 4, seed=9)
    one, two, minus = (side(seed, 4, weight)[0] for seed in (1, 2, 3))
    both = nthr([one, two], minus)
    torch.testing.assert_close(both.scores, nthr([one], minus).scores + nthr([two], minus).scores)
    assert both.threshold == min(anchor.mean() for anchor in both.anchors)


def test_states_inside_the_chosen_space_leave_no_energy() -> None:
    base = uniform(3, 24, seed=1)
    base = base - base.mean(-1, keepdim=True)
    mix = uniform(40, 3, seed=2).softmax(-1)
    chosen = mix @ base
    found = residual_energy(chosen, chosen[:5], rank=3)
    assert found is not None
    assert found.energy.max() < 0.05
    outside = residual_energy(chosen, uniform(5, 24, seed=3), rank=3)
    assert outside is not None
    assert outside.energy.min() > 0.2


def test_few_chosen_tokens_give_no_energy_and_equal_energies_the_middle_weight() -> None:
    assert residual_energy(uniform(3, 8), uniform(5, 8)) is None
    found = residual_energy(uniform(12, 8), uniform(1, 8, seed=1).expand(5, -1), rank=2)
    assert found is not None
    assert found.weights.tolist() == pytest.approx([0.55] * 5)


# ---------------------------------------------------------------------------------------------------- filters


def test_the_lowest_are_kept_in_the_order_of_the_data_and_only_usable_ones() -> None:
    scores = torch.tensor([3.0, 1.0, 1.0, float("nan"), 0.0, 2.0])
    assert keep_lowest(scores, 0.4).tolist() == [1, 4]
    usable = torch.tensor([True, True, True, True, False, True])
    assert keep_lowest(scores, 0.5, usable=usable).tolist() == [1, 2]
    assert keep_lowest(scores, 1e-9).tolist() == [4], "at least one"
    assert keep_lowest(scores, 1.0, usable=torch.zeros(6)).tolist() == []


@given(st.integers(1, 60), st.integers(1, 70), st.floats(0, 1))
def test_a_window_lies_inside_the_data_and_holds_its_quantile(total: int, size: int, quantile: float) -> None:
    window = quantile_window(total, size, quantile)
    assert len(window) == min(size, total)
    assert 0 <= window.start <= round(quantile * (total - 1)) <= window.stop
    assert window.stop <= total


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert ranks([3.0, 1.0, 3.0, 2.0]).tolist() == [2.5, 0.0, 2.5, 1.0]


def test_rank_correlation_sees_order_alone() -> None:
    x = [1.0, 2.0, 5.0, 9.0]
    assert spearman(x, [value**3 for value in x]) == pytest.approx(1)
    assert spearman(x, [-value for value in x]) == pytest.approx(-1)
    assert spearman(x, [1.0] * 4) is None
    assert spearman([1.0], [2.0]) is None
    assert spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) == pytest.approx(0.8207826817, rel=1e-9)
