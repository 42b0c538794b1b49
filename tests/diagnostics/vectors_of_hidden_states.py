"""Entries on hidden states: CHES, head gradients, tokens' influence, residual energy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from prefopt.diagnostics.head_gradients import TokenGradients, advantage_scale, interference, nthr
from prefopt.diagnostics.residual import residual_energy
from prefopt.diagnostics.similarity import Similarity, StateSums, similarity, state_sums
from tests.diagnostics.vectors import ENTRIES, Read, reproduces, tensor


def side(hidden: Tensor, mask: Any) -> StateSums:
    return state_sums(hidden.unsqueeze(0), torch.as_tensor(mask, dtype=torch.bool).unsqueeze(0))


def scores(chosen: StateSums, rejected: StateSums) -> dict[str, Tensor]:
    found = similarity(chosen, rejected)
    return {"ches": found.ches[0], "ln_ches": found.ln_ches[0]}


@reproduces("ches/basic")
def basic(given: Read) -> dict[str, Any]:
    chosen = side(given.tensor("hidden_chosen"), given["labels_mask_chosen"])
    rejected = side(given.tensor("hidden_rejected"), given["labels_mask_rejected"])
    return {
        "sum_chosen": chosen.sums[0],
        "sum_rejected": rejected.sums[0],
        "n_chosen": chosen.counts[0],
        "n_rejected": rejected.counts[0],
        **scores(chosen, rejected),
        "mean_state_cosine": similarity(chosen, rejected).cosine[0],
    }


@reproduces("ches/padding")
def padding(given: Read) -> dict[str, Any]:
    chosen = side(given.tensor("hidden_chosen"), given["labels_mask_chosen"])
    hidden, mask = given.tensor("hidden_rejected_unpadded"), given["labels_mask_rejected_unpadded"]
    pad = given.tensor("pad_state").unsqueeze(0)
    left = scores(chosen, side(torch.cat([pad, hidden]), [0, *mask]))
    right = scores(chosen, side(torch.cat([hidden, pad]), [*mask, 0]))
    # the released routine: everything from the prompt's last token to the last column but one
    wrong = torch.cat([hidden, pad])[mask.index(1) - 1 : -1]
    released = StateSums(wrong.sum(0, keepdim=True), torch.tensor([len(wrong)]), wrong[-1:])
    return {
        "left_padded_ches": left["ches"],
        "right_padded_ches_with_label_mask": right["ches"],
        "left_padded_ln_ches": left["ln_ches"],
        "right_padded_released_routine_WRONG_ches": scores(chosen, released)["ches"],
        "right_padded_released_routine_WRONG_ln_ches": scores(chosen, released)["ln_ches"],
    }


@reproduces("ches/eos_convention")
def end_token(given: Read) -> dict[str, Any]:
    chosen, rejected = given.tensor("hidden_chosen"), given.tensor("hidden_rejected")
    without = side(chosen, given["labels_mask_chosen_without_eos"])
    without_rejected = side(rejected, given["labels_mask_rejected_without_eos"])
    masks = [ENTRIES["ches/basic"]["inputs"][f"labels_mask_{name}"] for name in ("chosen", "rejected")]
    counts = {"n_chosen": without.counts[0], "n_rejected": without_rejected.counts[0]}
    return {
        "with_eos": scores(side(chosen, masks[0]), side(rejected, masks[1])),
        "without_eos": scores(without, without_rejected) | counts,
    }


@reproduces("ches/identical")
def identical(given: Read) -> dict[str, Any]:
    both = side(given.tensor("hidden"), given["labels_mask"])
    return scores(both, both)


@reproduces("ches/constant_states")
def constant(given: Read) -> dict[str, Any]:
    def repeated(count: int) -> StateSums:
        return side(given.tensor("state").expand(count + 1, -1), [0, *[1] * count])

    chosen, rejected = repeated(given["n_chosen"]), repeated(given["n_rejected"])
    return scores(chosen, rejected) | {"mean_state_cosine": similarity(chosen, rejected).cosine[0]}


@reproduces("ches/shared_prefix")
def shared_prefix(given: Read) -> dict[str, Any]:
    def one(suffix: str) -> StateSums:
        total = (given.tensor("prefix_sum") + given.tensor(suffix)).unsqueeze(0)
        return StateSums(total, torch.ones(1), total)

    return {"ches": similarity(one("chosen_suffix_sum"), one("rejected_suffix_sum")).ches[0]}


@reproduces("ches/last_hidden_inner_product")
def last_inner_product(given: Read) -> dict[str, Any]:
    chosen, rejected = given.tensor("hidden_chosen"), given.tensor("hidden_rejected")
    masks = [ENTRIES["ches/basic"]["inputs"][f"labels_mask_{name}"] for name in ("chosen", "rejected")]
    found = similarity(side(chosen, masks[0]), side(rejected, masks[1]))
    return {
        "after_full_response": chosen[-1] @ rejected[-1],
        "state_predicting_last_label": found.last_inner_product[0],
    }


@reproduces("ches/precision")
def precision(given: Read) -> dict[str, Any]:
    assert given["k"] == "0..T-1"
    assert given["j"] == "0..d-1"
    assert given["chosen"] == "1 + ((7k+3j) mod 8)/8"
    assert given["rejected"] == "chosen + ((k+j) mod 2)/8"
    k = torch.arange(given["T"], dtype=torch.float64).unsqueeze(1)
    j = torch.arange(given["d"], dtype=torch.float64)
    chosen = 1 + ((7 * k + 3 * j) % 8) / 8
    rejected = chosen + ((k + j) % 2) / 8
    mask = [0, *[1] * len(chosen)]
    half = [torch.cat([one, one[:1]]).bfloat16() for one in (chosen, rejected)]  # exact: eighths below 2
    sums = [side(one, mask) for one in half]
    stored = [StateSums(one.sums.bfloat16(), one.counts, one.last) for one in sums]
    stuck = [accumulated(one[:-1]) for one in half]
    large = [(sums[0].sums[0].double() @ one.sums[0].double()).bfloat16() for one in (sums[1], sums[0])]
    return {
        "sum_chosen": sums[0].sums[0],
        "sum_rejected": sums[1].sums[0],
        "ches_float64": similarity(*sums).ches[0],
        "sums_stored_in_bf16": similarity(*stored).ches[0],
        "bf16_accumulator": (stuck[0] * (stuck[1] - stuck[0])).sum().double(),
        "bf16_accumulator_sum_chosen": stuck[0],
        "two_large_terms_rounded_to_bf16": (large[0] - large[1]).double(),
        "fp16_max": torch.finfo(torch.float16).max,
        "largest_term_squared_norm": sums[0].sums[0].double().square().sum(),
    }


def accumulated(states: Tensor) -> Tensor:
    total = torch.zeros_like(states[0])
    for state in states:
        total = total + state
    return total


W = tensor(ENTRIES["interference/theorem6"]["inputs"]["W"])
STATES = ENTRIES["interference/theorem6"]["inputs"]["states"]


def names_of(response: list[int]) -> list[str]:
    """The names of the states that predict a response's tokens: `x`, `x,0`, ..."""
    return [",".join(["x", *map(str, response[:k])]) for k in range(len(response))]


def tokens_of(weight: Tensor, states: Any, response: list[int]) -> TokenGradients:
    hidden = torch.stack([tensor(states[name]) for name in names_of(response)])
    return TokenGradients.of(hidden @ weight.T, torch.tensor(response), hidden)


@reproduces("interference/theorem6")
def theorem6(given: Read) -> dict[str, Any]:
    weight, chosen, rejected = given.tensor("W"), given["chosen"], given["rejected"]
    plus, minus = tokens_of(weight, given["states"], chosen), tokens_of(weight, given["states"], rejected)
    meeting = interference(plus, minus)
    logp_chosen, grad_chosen = gradients(weight, given["states"], chosen)
    logp_rejected, grad_rejected = gradients(weight, given["states"], rejected)
    first = decomposition(weight, given["states"], chosen, rejected)
    minus_terms, plus_terms = plus.products(minus), plus.products(plus)
    states = [side_sums(one) for one in (plus, minus)]
    found: Similarity = similarity(*states)
    return {
        "logprob_chosen": logp_chosen,
        "logprob_rejected": logp_rejected,
        "derivative_over_minus_lprime": inner(grad_chosen, grad_chosen) - inner(grad_chosen, grad_rejected),
        **first,
        "hidden_term": plus_terms.sum() - minus_terms.sum(),
        "alpha_minus": plus.agreement(minus),
        "alpha_plus": plus.agreement(plus),
        "ches": found.ches,
        "minus_ches_equals_hidden_term_with_alpha_1": (plus.states @ (plus.states.sum(0) - minus.states.sum(0))).sum(),
        "head_gradient_inner_product": meeting.product,
        "head_gradient_chosen_sqnorm": meeting.chosen_square,
        "head_gradient_cosine": meeting.cosine,
        "full_inner_product": inner(grad_chosen, grad_rejected),
        "full_chosen_sqnorm": inner(grad_chosen, grad_chosen),
    }


def side_sums(tokens: TokenGradients) -> StateSums:
    return StateSums(tokens.states.sum(0), torch.tensor(len(tokens.states)), tokens.states[-1])


def gradients(weight: Tensor, states: Any, response: list[int]) -> tuple[Tensor, list[Tensor]]:
    """log pi(response) and its gradient in the head and in each free state, by autograd."""
    leaves = [weight.clone().requires_grad_(), *(tensor(state).requires_grad_() for state in states.values())]
    by_name = dict(zip(states, leaves[1:], strict=True))
    steps = zip(names_of(response), response, strict=True)
    logp = torch.stack([(leaves[0] @ by_name[name]).log_softmax(-1)[token] for name, token in steps]).sum()
    found = torch.autograd.grad(logp, leaves, allow_unused=True)
    pairs = zip(found, leaves, strict=True)
    return logp.detach(), [torch.zeros_like(leaf) if slope is None else slope for slope, leaf in pairs]


def inner(a: list[Tensor], b: list[Tensor]) -> Tensor:
    return torch.stack([(x * y).sum() for x, y in zip(a, b, strict=True)]).sum()


def decomposition(weight: Tensor, states: Any, chosen: list[int], rejected: list[int]) -> dict[str, Tensor]:
    """The terms of Theorem 6 that are not sums over hidden states."""
    p = (weight @ tensor(states["x"])).softmax(-1)
    up, down = chosen[0], rejected[0]
    plus, minus = weight[up], weight[down]
    others = [z for z in range(len(weight)) if z not in (up, down)]
    m = (1 - p[up]) * plus.square().sum() + p[down] * minus.square().sum()
    for name, token in list(zip(names_of(chosen), chosen, strict=True))[1:]:
        mean = (weight @ tensor(states[name])).softmax(-1) @ weight
        m = m + (weight[token] - mean).square().sum()
    rest = sum(p[z] * (weight[z] @ (plus - minus)) for z in others)
    return {"m": m, "first_token_term_S": -(1 - p[up] + p[down]) * (plus @ minus) - rest}


@reproduces("interference/theorem4_displaced")
def theorem4(given: Read) -> dict[str, Any]:
    weight, h, up, down = given.tensor("W"), given.tensor("h"), given["chosen"], given["rejected"]
    p = (weight @ h).softmax(-1)
    plus, minus = weight[up], weight[down]
    rest = sum(p[z] * (weight[z] @ (plus - minus)) for z in range(len(weight)) if z not in (up, down))
    m = (1 - p[up]) * plus.square().sum() + p[down] * minus.square().sum() + (1 - p[up] + p[down]) * h.square().sum()
    rates = [free_rate(weight, h, z, up, down) for z in range(len(weight))]
    return {
        "probs": p,
        "derivative_over_minus_lprime": m - (1 - p[up] + p[down]) * (plus @ minus) - rest,
        "rates_all_tokens_over_minus_lprime": rates,
        "unembedding_alignment": weight @ (plus - minus),
    }


def free_rate(weight: Tensor, h: Tensor, token: int, up: int, down: int) -> Tensor:
    """<grad log pi(token), grad (log pi(chosen) - log pi(rejected))> over head and state, by autograd."""
    leaves = [weight.clone().requires_grad_(), h.clone().requires_grad_()]
    logps = (leaves[0] @ leaves[1]).log_softmax(-1)
    mine = torch.autograd.grad(logps[token], leaves, retain_graph=True)
    pull = torch.autograd.grad(logps[up] - logps[down], leaves)
    return inner(list(mine), list(pull))


@reproduces("interference/nthr")
def influence(given: Read) -> dict[str, Any]:
    weight, vocabulary = given.tensor("W"), torch.tensor(given["restricted_vocab"])
    plus, minus = (tokens_of(weight, STATES, given[name]) for name in ("chosen", "rejected"))
    found = nthr([plus], minus)
    return {
        "token_scores": found.scores,
        "anchor_scores_tokens": found.anchors[0],
        "tau_beta1": found.threshold,
        "selected": found.selected,
        "pair_total": found.scores.sum(),
        "token_scores_restricted": nthr([plus], minus, vocabulary=vocabulary).scores,
        "eta_at_p": {str(p): advantage_scale(p) for p in (0.25, 0.5, 0.9)},
    }


@reproduces("interference/resrl_residual")
def residual(given: Read) -> dict[str, Any]:
    found = residual_energy(
        given.tensor("positive_states"),
        given.tensor("negative_states"),
        rank=given["rank"],
        quantiles=(given["q_low"], given["q_high"]),
        least=given["min_weight"],
        eps=given["layer_norm_eps"],
    )
    assert found is not None
    return {
        "residual_energy": found.energy,
        "q_low_value": found.low,
        "q_high_value": found.high,
        "weights": found.weights,
    }
