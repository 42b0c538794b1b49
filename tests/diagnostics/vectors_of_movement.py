"""Entries on movement, and on methods whose formulas the library does not offer, computed here."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prefopt import pair_loss
from prefopt.diagnostics.displacement import dataset_displaced, movement, quadrant_counts, ranking_accuracy
from tests.diagnostics.vectors import ENTRIES, Read, reproduces, tensor


def padded(rows: list[list[float]], width: int) -> Tensor:
    return torch.stack([F.pad(tensor(row), (0, width - len(row)), value=torch.nan) for row in rows])


@reproduces("displacement/batch")
def batch(given: Read) -> dict[str, Any]:
    names = ("chosen", "rejected")
    width = max(len(row) for name in names for row in given[f"policy_{name}"])
    policy, start = (
        torch.stack([padded(given[f"{model}_{name}"], width) for name in names], 1) for model in ("policy", "ref")
    )
    found = movement(policy, start, ~policy.isnan())
    chosen, rejected = found.normalised()
    sums, first = policy.nansum(-1), start.nansum(-1)

    def dpo(now: Tensor) -> Tensor:
        return pair_loss("dpo", now[:, 0], now[:, 1], first[:, 0], first[:, 1], beta=given["beta"])[0]

    return {
        "chosen_delta": found.chosen,
        "rejected_delta": found.rejected,
        "margin": found.margin,
        "implicit_reward_margin": given["beta"] * found.margin,
        "chosen_delta_mean": chosen.per_response,
        "rejected_delta_mean": rejected.per_response,
        "chosen_delta_per_token_of_each": found.chosen_per_token,
        "chosen_delta_token_mean": chosen.per_token,
        "rejected_delta_token_mean": rejected.per_token,
        "chosen_delta_mean_of_per_token": chosen.mean_per_token,
        "fraction_chosen_dropped": found.chosen_dropped.double().mean(),
        "fraction_both_dropped": found.both_dropped.double().mean(),
        "quadrants": quadrant_counts(found.quadrants),
        "reward_accuracy": (found.margin > 0).double().mean(),
        "ranking_accuracy": ranking_accuracy(sums[:, 0], sums[:, 1]),
        "reference_ranking_accuracy": ranking_accuracy(first[:, 0], first[:, 1]),
        "length_gap_mean": (found.chosen_tokens - found.rejected_tokens).double().mean(),
        "dpo_loss_at_reference": dpo(first).mean(),
        "dpo_loss_now": dpo(sums).mean(),
        "dataset_displaced": dataset_displaced(
            loss_now=dpo(sums), loss_start=dpo(first), chosen_now=sums[:, 0], chosen_start=first[:, 0]
        ),
        "log_ratio_chosen_k1_mean": found.chosen.mean(),
    }


@reproduces("dpo_kernels/kernels")
def kernels(given: Read) -> dict[str, Any]:
    """The kernels of the sheet, which advises against offering them."""
    x, inverse = given.tensor("e_x"), given.tensor("sigma_inv")

    def mahalanobis(y: Tensor) -> Tensor:
        return (-(x - y) @ inverse @ (x - y) / 2).exp()

    kinds = {
        "poly": lambda y: (x @ y + given["c"]) ** given["degree"],
        "rbf": lambda y: (-(x - y).square().sum() / (2 * given["sigma"] ** 2)).exp(),
        "mahalanobis": mahalanobis,
        "linear": lambda y: x @ y,
    }
    found = {}
    for name, kernel in kinds.items():
        chosen, rejected = kernel(given.tensor("e_chosen")), kernel(given.tensor("e_rejected"))
        found[name] = {"chosen": chosen, "rejected": rejected, "log_ratio": (chosen / rejected).log()}
    return found


@reproduces("reference/variants")
def references(given: Read) -> dict[str, Any]:
    """DPO under its usual reference, none, and an unconditional prior."""
    sums = {name: tensor(value) for name, value in ENTRIES["registry/inputs"]["expected"].items()}
    nothing = torch.zeros_like(sums["policy_chosen"])
    known = {
        "usual": (sums["ref_chosen"], sums["ref_rejected"]),
        "none": (nothing, nothing),
        "prior": (given.tensor("prior_chosen"), given.tensor("prior_rejected")),
    }
    margins, losses = {}, {}
    for name, (chosen, rejected) in known.items():
        margins[name] = (sums["policy_chosen"] - chosen) - (sums["policy_rejected"] - rejected)
        policy = (sums["policy_chosen"], sums["policy_rejected"])
        losses[name] = pair_loss("dpo", *policy, chosen, rejected, beta=given["beta"])[0]
    sweep = []
    for beta in given["betas"]:
        margin = tensor([given["margin_for_sweep"]]).requires_grad_()
        zero = torch.zeros_like(margin)
        (slope,) = torch.autograd.grad(pair_loss("dpo", margin, zero, zero, zero, beta=beta)[0].sum(), margin)
        sweep.append(-slope[0])
    return {"margins": margins, "losses": losses, "gradient_weight_over_betas": sweep}
