"""Entries on losses: values and gradient coefficients through the registry, and how batches add up."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from prefopt import Scores, StepContext, get_loss
from prefopt.diagnostics.coefficients import gradient_coefficients
from prefopt.losses._weights import difference_weights
from prefopt.losses.beta_dpo import log_weights
from prefopt.losses.dr_dpo import soft_min
from prefopt.losses.mc_po import kernel_probabilities
from tests.diagnostics.vectors import ENTRIES, Read, reproduces, tensor
from tests.losses.test_beta_dpo import Given, keeping, statistics
from tests.losses.test_sampo import Picking
from tests.losses.vectors import SIDES, shared_batch

SHARED = Read(ENTRIES["registry/inputs"]["inputs"])


@reproduces("registry/inputs")
def inputs(given: Read) -> dict[str, Any]:
    def sums(name: str) -> Tensor:
        return torch.stack([tensor(row).sum() for row in given[f"{name}_tokens"]])

    found = {f"{model}_{side}": sums(f"{model}_{side}") for side in SIDES for model in ("policy", "ref")}
    lengths = {f"len_{side}": [float(len(row)) for row in given[f"policy_{side}_tokens"]] for side in SIDES}
    ratios = [found[f"policy_{side}"] - found[f"ref_{side}"] for side in SIDES]
    return {**found, **lengths, "margin": ratios[0] - ratios[1]}


def odds_term(scores: Scores, context: StepContext | None = None) -> Any:
    whole, nll = get_loss("orpo", lam=1.0)(scores), get_loss("nll")(scores)
    return dataclasses.replace(whole, losses=whole.losses - nll.losses)


LOSSES: dict[str, Callable[[Read], Any]] = {
    "dpo": lambda i: get_loss("dpo", beta=i["beta"]),
    "cdpo": lambda i: get_loss("dpo", beta=i["beta"], label_smoothing=i["label_smoothing"]),
    "rdpo_robust": lambda i: get_loss("robust_dpo", beta=i["beta"], epsilon=i["label_smoothing"]),
    "ipo_sum": lambda i: get_loss("ipo_sum", tau=i["tau"]),
    "ipo_mean": lambda i: get_loss("ipo", tau=i["tau"]),
    "hinge": lambda i: get_loss("hinge", beta=i["beta"]),
    "dpop": lambda i: get_loss("dpop", beta=i["beta"], lam=i["lambda_"]),
    "h_dpo": lambda i: get_loss("h_dpo", beta=i["beta"], alpha=i["alpha"]),
    "dpo_shift": lambda i: get_loss("dpo_shift", beta=i["beta"], lam=i["f_lambda"]),
    "ln_dpo": lambda i: get_loss("ln_dpo", beta=i["beta"]),
    "r_dpo_length": lambda i: get_loss("r_dpo", beta=i["beta"], alpha=i["alpha"]),
    "simpo": lambda i: get_loss("simpo", beta=i["beta"], gamma_beta_ratio=i["gamma"] / i["beta"]),
    "cpo_preference_term": lambda i: get_loss("cpo", beta=i["beta"], cpo_alpha=0),
    "orpo_odds_term": lambda i: odds_term,
    "tdpo1": lambda i: get_loss("tdpo1", beta=i["beta"]),
    "tdpo2": lambda i: get_loss("tdpo2", beta=i["beta"], alpha=i["alpha"]),
    "f_dpo_forward_kl": lambda i: get_loss("f_dpo", beta=i["beta"], divergence="forward_kl"),
    "f_dpo_js": lambda i: get_loss("f_dpo", beta=i["beta"], divergence="jensen_shannon"),
    "f_dpo_alpha": lambda i: get_loss("f_dpo", beta=i["beta"], divergence="alpha", alpha=i["alpha"]),
}


def on_shared_batch(name: str) -> Callable[[Read], dict[str, Any]]:
    """Losses and coefficients of a registered loss on the batch that all entries share."""

    def compute(given: Read) -> dict[str, Any]:
        loss, scores = LOSSES[name](given), shared_batch()
        if "seq_kl_chosen" in given:  # sums over the response; put on its first token
            kl = torch.zeros_like(scores.policy).detach()
            kl[..., 0] = torch.stack([given.tensor(f"seq_kl_{side}") for side in SIDES], -1)
            scores = dataclasses.replace(scores, kl=kl)
        losses, slopes = loss(scores).losses.detach(), gradient_coefficients(loss, scores)
        return {
            "loss": losses,
            "mean": losses.mean(),
            "dloss_dchosen": -slopes.chosen,
            "dloss_drejected": slopes.rejected,
        }

    return compute


for known in LOSSES:
    reproduces(f"registry/{known}")(on_shared_batch(known))


@reproduces("dpo/gradient")
def dpo_gradient(given: Read) -> dict[str, Any]:
    margin = given.tensor("margin")
    scores = Scores.from_sums(torch.stack([margin, torch.zeros_like(margin)], -1), torch.zeros(len(margin), 2).double())
    loss = get_loss("dpo", beta=given["beta"])
    slopes = gradient_coefficients(loss, scores)
    return {"loss": loss(scores).losses, "dloss_dmargin": -slopes.chosen, "weight": slopes.rejected}


@reproduces("fdpo/scores")
def f_scores(given: Read) -> dict[str, Any]:
    """Scores as the sheet writes them, and that the loss's own differ from them by a constant alone."""
    u = given.tensor("ratio_u")
    found = {
        "reverse_kl": u.log(),
        "forward_kl": -1 / u,
        "jensen_shannon": (u / (1 + u)).log(),
        "alpha_0.5": (1 - u**-0.5) / 0.5,
        "alpha_0.9": (1 - u**-0.9) / 0.9,
        "chi_po": u.log() + u,
        "alpha_power_form_coef_0.5": u ** (0.5 - 1) / (0.5 - 1),
    }
    ratios = u.log().requires_grad_()
    scores = Scores.from_sums(torch.stack([ratios, torch.zeros_like(ratios)], -1), torch.zeros(len(u), 2).double())
    for name in ("reverse_kl", "forward_kl", "jensen_shannon"):
        mine = get_loss("f_dpo", divergence=name)(scores).metrics["f_dpo/score_chosen"]
        offset = mine - found[name]
        torch.testing.assert_close(offset, offset[:1].expand(len(u)))
    leaf = u.log().requires_grad_()
    ways = {
        "reverse_kl": leaf,
        "forward_kl": -(-leaf).exp(),
        "jensen_shannon": leaf - leaf.exp().log1p(),
        "alpha_0.5": (1 - (-0.5 * leaf).exp()) / 0.5,
    }
    slopes = {name: torch.autograd.grad(way.sum(), leaf)[0] for name, way in ways.items()}
    return {**found, "derivatives_at_u": slopes}


@reproduces("dpa/weighted_model_count")
def model_counts(given: Read) -> dict[str, Any]:
    """Losses as statements about independent propositions: `w`, `l` (the policy says a response), `rw`, `rl` (so does
    the reference). rho is the log of the counted weight of what a loss wants over that of what it does not."""
    weight = {"w": given["p_chosen"], "l": given["p_rejected"], "rw": given["ref_chosen"], "rl": given["ref_rejected"]}

    def count(holds: Callable[[dict[str, bool]], bool]) -> float:
        total = 0.0
        for values in itertools.product((False, True), repeat=len(weight)):
            world = dict(zip(weight, values, strict=True))
            if holds(world):
                total += math.prod(p if world[name] else 1 - p for name, p in weight.items())
        return total

    wanted: dict[str, tuple[Callable[..., bool], Callable[..., bool]]] = {
        "CE": (lambda v: v["w"], lambda v: not v["w"]),
        "CEUnl": (lambda v: v["w"] and not v["l"], lambda v: not (v["w"] and not v["l"])),
        "CPO": (lambda v: v["w"], lambda v: v["l"]),
        "ORPO": (lambda v: v["w"] and not v["l"], lambda v: v["l"] and not v["w"]),
        "cCPO": (lambda v: v["w"], lambda v: v["l"] and not v["w"]),
        "unCPO": (lambda v: v["w"] or not v["l"], lambda v: v["l"] and not v["w"]),
        "DPO": (lambda v: v["w"] and v["rl"], lambda v: v["l"] and v["rw"]),
    }
    rho = {name: math.log(count(good) / count(bad)) for name, (good, bad) in wanted.items()}
    return {"rho": rho, "loss_minus_log_sigmoid": {name: math.log1p(math.exp(-value)) for name, value in rho.items()}}


@reproduces("registry/nll_terms")
def nll_terms(given: Read) -> dict[str, Any]:
    assert given["alpha"] == 1
    rows = [tensor(row) for row in SHARED["policy_chosen_tokens"]]
    sums, means = -torch.stack([row.sum() for row in rows]), get_loss("nll")(shared_batch()).losses.detach()
    return {
        "sum_per_response": sums,
        "mean_per_response": means,
        "mean_over_pairs_of_sum": sums.mean(),
        "mean_over_pairs_of_mean": means.mean(),
        "token_mean_over_batch": sums.sum() / sum(map(len, rows)),
    }


@reproduces("registry/sampo")
def sampo(given: Read) -> dict[str, Any]:
    scores = shared_batch()
    loss = get_loss("sampo", beta=given["beta"], mode="sample")
    picked = {f"{side}_indices": given[f"{side}_indices"] for side in SIDES}
    out = loss(scores, StepContext(draw=Picking(picked, scores.policy.shape[-1])))
    return {"margin": out.metrics["sampo/chosen"] - out.metrics["sampo/rejected"], "loss": out.losses}


def weights_block(given: Read, name: str, width: int, filler: float = 0.0) -> Tensor:
    sides = [[[*row, *[filler] * (width - len(row))] for row in given[f"{name}_{side}"]] for side in SIDES]
    return tensor(sides).transpose(0, 1).contiguous()


@reproduces("registry/bmc")
def bmc(given: Read) -> dict[str, Any]:
    scores = shared_batch()
    scores = dataclasses.replace(scores, diff=weights_block(given, "diff_mask", scores.policy.shape[-1]).bool())
    weights = difference_weights(scores.policy.detach(), scores.diff, given["delta"])
    theirs = difference_weights(scores.reference, scores.diff, given["delta"])
    policy, reference = scores.policy.detach(), scores.reference
    ratio, own = scores.total(weights * (policy - reference)), scores.total(weights * policy - theirs * reference)
    kept = [[weights[b, r, : int(scores.mask[b, r].sum())] for b in range(len(weights))] for r in (0, 1)]
    return {
        "weights_chosen": kept[0],
        "weights_rejected": kept[1],
        "margin": ratio[:, 0] - ratio[:, 1],
        "loss": get_loss("bmc", beta=given["beta"], delta=given["delta"])(scores).losses,
        "margin_released_code_reference_weights": own[:, 0] - own[:, 1],
    }


@reproduces("registry/token_weighted")
def token_weighted(given: Read) -> dict[str, Any]:
    scores = shared_batch()
    scores = dataclasses.replace(scores, weights=weights_block(given, "weights", scores.policy.shape[-1]))
    losses = get_loss("token_weighted_dpo", beta=given["beta"])(scores).losses.detach()
    ratios = scores.total(scores.weights * (scores.policy.detach() - scores.reference))
    return {"margin": ratios[:, 0] - ratios[:, 1], "loss": losses}


@reproduces("registry/one_vs_many")
def one_vs_many(given: Read) -> dict[str, Any]:
    ratios = tensor([[given["log_ratio_chosen"], *given["log_ratio_rejected"]]])
    leaf, nothing = ratios.clone().requires_grad_(), torch.zeros_like(ratios)
    losses = get_loss("mc_po", beta=given["beta"])(Scores.from_sums(leaf, nothing)).losses
    (slope,) = torch.autograd.grad(losses.sum(), leaf)
    others = torch.ones_like(ratios, dtype=torch.bool)
    others[:, 0] = False
    shares = kernel_probabilities(given["beta"] * ratios, others)[0, 1:]
    dpo = get_loss("dpo", beta=given["beta"])
    pairs = torch.cat([dpo(Scores.from_sums(ratios[:, [0, k]], nothing[:, :2])).losses for k in (1, 2, 3)])
    return {
        "loss": losses[0],
        "sampling_weights": shares,
        "pairwise_losses": pairs,
        "expected_sampled_pair_loss": (shares * pairs).sum(),
        "dloss_drejected": slope[0, 1:],
    }


def soft_means(losses: Tensor, size: int, beta: float) -> Tensor:
    """The mean of soft minima over groups of neighbours."""
    return torch.stack([soft_min(part, beta) for part in losses.split(size)]).mean()


@reproduces("batch/dr_dpo")
def dr_dpo(given: Read) -> dict[str, Any]:
    losses, beta, pulls = given.tensor("pair_losses"), given["beta_prime"], given.tensor("pair_gradients")
    placed = [pairs for micro in given["placement_micro_rank_pair"] for pairs in micro]
    assert [pair for pairs in placed for pair in pairs] == list(range(len(losses)))

    def value_and_weights(size: int) -> dict[str, Any]:
        leaf = losses.clone().requires_grad_()
        value = soft_means(leaf, size, beta)
        return {"value": value.detach(), "pair_weights": torch.autograd.grad(value, leaf)[0]}

    groups = {str(size): value_and_weights(size) for size in (1, 2, 4, 8)}
    rank, world = len(placed[0]), given["world"]

    def pull(size: int) -> Tensor:
        return groups[str(size)]["pair_weights"] @ pulls

    return {
        "value": groups["8"]["value"],
        "pair_weights": groups["8"]["pair_weights"],
        "by_group_size": groups,
        "gradient_exact": pull(8),
        "gradient_mean_loss": pull(1),
        "gradient_local_groups_of_2": pull(rank),
        "gradient_gathered_per_microbatch_of_4": pull(rank * world),
        "local_scale": world * given["accum"],
    }


@reproduces("batch/logsumexp_merge")
def merge(given: Read) -> dict[str, Any]:
    ranks = [tensor(part) for part in given["ranks"]]
    parts = [[(-part).max(), (-part - (-part).max()).exp().sum()] for part in ranks]
    top = torch.stack([part[0] for part in parts]).max()
    merged = top + torch.stack([scaled * (mine - top).exp() for mine, scaled in parts]).sum().log()
    return {"max_and_sum": parts, "logsumexp": merged, "value": soft_min(torch.cat(ranks), given["beta_prime"])}


@reproduces("batch/beta_dpo")
def beta_dpo(given: Read) -> dict[str, Any]:
    gap = given.tensor("gap")
    loss = get_loss(
        "beta_dpo",
        beta=given["beta"],
        alpha=given["a"],
        momentum=given["momentum"],
        keep_ratio=1 - given["filter_rate"],
        beta_min=given["beta_min"],
    )
    scores = Scores.from_sums(torch.stack([gap, torch.zeros_like(gap)], -1), torch.zeros(len(gap), 2).double())
    context = StepContext(draw=Given(keeping(given["kept_indices"], len(gap))), state=statistics(given["state"]))
    out = loss(scores, context)
    kept, beta = out.metrics["beta_dpo/kept"].bool(), out.metrics["beta_dpo/beta"][0].item()
    return {
        "new_state": {"mean": out.state.gap_mean, "std": out.state.gap_std},
        "sampling_weights": log_weights(gap, out.state, loss.params).exp(),
        "n_keep": kept.sum(),
        "mean_gap_kept": gap[kept].mean(),
        "beta_used": beta,
        "pair_losses": get_loss("dpo", beta=beta)(scores).losses,
        "pair_weights": kept.double() / kept.sum(),
        "value": out.losses.mean(),
    }


@reproduces("batch/ragged_mean")
def ragged_mean(given: Read) -> dict[str, Any]:
    parts = [tensor(part) for part in given["micro_batches"]]
    total = sum(map(len, parts))
    return {
        "mean_of_means": torch.stack([part.mean() for part in parts]).mean(),
        "true_mean": torch.cat(parts).mean(),
        "local_terms_scaled": [len(parts) * part.sum() / total for part in parts],
    }
