"""Entries on token ids, on next-token distributions, and on what a score keeps."""

from __future__ import annotations

from typing import Any

import torch

from prefopt.diagnostics.branch import branch_place, branch_point
from prefopt.diagnostics.filters import keep_lowest, quantile_window
from prefopt.diagnostics.greedy import greedy_track, pushed_down, track_of
from prefopt.diagnostics.information import did, did_entropy, entropy, rejected_distribution, token_did
from prefopt.diagnostics.pairs import compare_tokens
from prefopt.diagnostics.positions import position_changes, sampled_kl
from tests.diagnostics.vectors import Read, reproduces


@reproduces("pair/edit_distance")
def edit_distance(given: Read) -> dict[str, Any]:
    found = {}
    for name in given:
        pair = compare_tokens(given[name]["chosen"], given[name]["rejected"])
        found[name] = {
            "edit_distance": pair.edit_distance,
            "normalized": pair.normalized,
            "common_prefix": pair.common_prefix,
            "length_gap": pair.length_gap,
            "first_difference": pair.first_difference,
        }
    return found


@reproduces("displacement/position")
def position(given: Read) -> dict[str, Any]:
    policy, start = given.tensor("policy_logits"), given.tensor("ref_logits")
    label, rival = torch.tensor(given["label"]), torch.tensor(given["rejected_label"])
    found = position_changes(policy, start, label, rivals=rival)
    now, then = greedy_track(policy), greedy_track(start)
    estimates = sampled_kl(found.label_logp_change)
    return {
        "policy_probs": policy.softmax(-1),
        "ref_probs": start.softmax(-1),
        "entropy_policy": found.entropy,
        "entropy_ref": found.start_entropy,
        "kl_policy_ref": found.kl,
        "kl_ref_policy": found.reverse_kl,
        "total_variation": found.total_variation,
        "label_prob_change": found.label_probability_change,
        "label_logprob_change": found.label_logp_change,
        "k1": estimates.k1,
        "k2": estimates.k2,
        "k3": estimates.k3,
        "greedy_token_policy": now.token,
        "greedy_logprob_policy": now.logp,
        "ref_greedy_token": then.token,
        "ref_greedy_logprob_under_policy": track_of(policy, then.token),
        "top_probability_gain_token": found.gainer,
        "top_probability_gain": found.gain,
        "top_logprob_gain_token": (policy.log_softmax(-1) - start.log_softmax(-1)).argmax(-1),
        "label_gain_rank": found.label_rank,
        "mass_other_policy": found.other_mass,
        "mass_other_ref": found.start_other_mass,
        "log_one_minus_peak": now.log_rest,
    }


@reproduces("displacement/branch_point")
def branch(given: Read) -> dict[str, Any]:
    place = branch_place(given["chosen"], given["rejected"])
    assert place is not None
    policy, start = (given.tensor(f"{name}_probs_at_branch").unsqueeze(0) for name in ("policy", "ref"))
    found = branch_point(policy, start, torch.tensor([place.chosen]), torch.tensor([place.rejected]))
    assert found.gainer_is_third[0]
    return {
        "position": place.position,
        "chosen_token": place.chosen,
        "rejected_token": place.rejected,
        "chosen_prob_change": found.chosen_change[0],
        "rejected_prob_change": found.rejected_change[0],
        "other_mass_policy": found.other_now[0],
        "other_mass_ref": found.other_start[0],
        "third_token": found.gainer[0],
        "third_token_gain": found.gain[0],
        "third_is_policy_greedy": (found.gainer == found.greedy_now)[0],
    }


@reproduces("squeezing/logit_step")
def squeezing(given: Read) -> dict[str, Any]:
    assert given["step"] == "z <- z - eta*(onehot(y_minus) - p)"
    p, eta = given.tensor("probs"), given["eta"]
    tail, peak = torch.tensor(3), torch.tensor(0)
    after = pushed_down(p, tail, eta=eta)
    many = p
    for _ in range(30):
        many = pushed_down(many, tail, eta=eta)
    up = torch.zeros_like(p)
    up[1], up[3] = eta, -eta  # log pi(1) - log pi(3) with free logits: the normaliser cancels
    return {
        "negative_on_tail_token_3": after,
        "negative_on_peak_token_0": pushed_down(p, peak, eta=eta),
        "pair_1_over_3_free_logits": (p.log() + up).softmax(-1),
        "after_30_tail_steps": many,
        "log_ratio_tail_step": (after / p).log(),
    }


@reproduces("did/categorical")
def categorical(given: Read) -> dict[str, Any]:
    policy, reference, draws = given.tensor("policy"), given.tensor("reference"), torch.tensor(given["draws"])
    q = did(policy, reference)

    def plug_in(model: Any) -> dict[str, Any]:
        found = did_entropy(policy.log()[draws], reference.log()[draws], drawn_from=model, resamples=10)
        return {
            "log_weight": found.log_weights,
            "logZ_hat": found.log_normaliser,
            "entropy_hat": found.estimate,
            "ess": found.ess,
        }

    return {
        "ratio": policy / reference,
        "Z": (policy / reference).sum(),
        "did": q,
        "entropy": entropy(q),
        "max_entropy": entropy(torch.full_like(q, 1 / len(q))),
        "kl_policy_ref": (policy * (policy / reference).log()).sum(),
        "plug_in": {f"samples_from_{model}": plug_in(model) for model in ("policy", "reference")},
    }


@reproduces("did/no_update")
def no_update(given: Read) -> dict[str, Any]:
    q = did(given.tensor("policy"), given.tensor("reference"))
    return {"did": q, "entropy": entropy(q)}


@reproduces("did/rejected_distribution")
def rejected(given: Read) -> dict[str, Any]:
    target, reference = given.tensor("target"), given.tensor("reference")
    found = rejected_distribution(target, reference, beta=given["beta"])
    score, goal = reference.log() - found.log(), given["beta"] * (target.log() - reference.log())
    for i, j in ((0, 4), (1, 2)):  # the preference is the one of which DPO's optimum is the target
        torch.testing.assert_close(score[i] - score[j], goal[i] - goal[j], rtol=1e-9, atol=1e-12)
    return {
        "rejected": found,
        "preference_0_over_4": (score[0] - score[4]).sigmoid(),
        "preference_1_over_2": (score[1] - score[2]).sigmoid(),
    }


@reproduces("did/token")
def one_position(given: Read) -> dict[str, Any]:
    q = token_did(given.tensor("policy_logits"), given.tensor("ref_logits"))
    return {"did": q, "entropy": entropy(q)}


@reproduces("filter/lowest_fraction")
def lowest_fraction(given: Read) -> dict[str, Any]:
    scores = given.tensor("scores")
    kept = keep_lowest(scores, given["keep_fraction"])
    return {"kept_sorted_by_index": kept, "n": len(kept), "threshold_inclusive": scores[kept].max()}


@reproduces("filter/quantile_window")
def window(given: Read) -> dict[str, Any]:
    ranks = given["sorted_ranks"]
    windows = {str(q): quantile_window(len(ranks), given["size"], q) for q in given["quantiles"]}
    return {q: [ranks[place] for place in places] for q, places in windows.items()}
