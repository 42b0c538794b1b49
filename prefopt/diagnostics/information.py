"""The differential information distribution: what would have to be learned to turn the reference into the policy.

A research measure. For sequences its entropy cannot be estimated from a few draws: the weights are reciprocals of
sequence probabilities, hundreds of nats apart, so that one draw takes all the weight. Estimates therefore come with
their effective sample size, and give no verdict when it is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


def did(policy: Tensor, reference: Tensor) -> Tensor:
    """q(y) = (policy(y) / reference(y)) / sum over y' of the same.

    Shapes: probabilities `[..., Y]` over all outcomes -> `[..., Y]`. Equal policy and reference give the uniform
    distribution, so the entropy's absolute value is the size of the support: over sequences of up to T tokens about
    T log V nats.
    Source: arXiv:2505.23761.
    """
    return torch.softmax(policy.log() - reference.log(), -1)


def entropy(probabilities: Tensor) -> Tensor:
    """-sum p log p, nats, `[..., Y] -> [...]`."""
    total: Tensor = torch.special.xlogy(probabilities, probabilities).sum(-1)
    return -total


def token_did(policy_logits: Tensor, reference_logits: Tensor, *, top_p: float | None = None) -> Tensor:
    """The distribution at one position: softmax(policy logits - reference logits), `[..., V] -> [..., V]`.

    `top_p` restricts it to the likeliest tokens under the reference that together reach this mass: elsewhere the ratios
    of tokens that neither model would say dominate. An extension of ours, exact where the paper's sequence measure is
    not.
    """
    difference = policy_logits.log_softmax(-1) - reference_logits.log_softmax(-1)
    if top_p is not None:
        probabilities, order = reference_logits.softmax(-1).sort(-1, descending=True)
        outside = probabilities.cumsum(-1) - probabilities >= top_p  # the mass before a token
        difference = difference.masked_fill(torch.zeros_like(outside).scatter(-1, order, outside), -torch.inf)
    return difference.softmax(-1)


def rejected_distribution(target: Tensor, reference: Tensor, *, beta: float) -> Tensor:
    """reference * (reference / target)^beta, normalised: what rejected responses must come from for DPO to find target.

    With chosen responses from the reference and rejected ones from this, DPO with that `beta` has its optimum at
    `target`: preference data with a known answer.
    Shapes: probabilities `[..., Y] -> [..., Y]`. Source: arXiv:2505.23761.
    """
    return ((1 + beta) * reference.log() - beta * target.log()).softmax(-1)


@dataclass(frozen=True)
class DIDEntropy:
    """An estimate of the entropy of the differential information distribution, nats.

    `low` and `high` bound the middle 95 % of its bootstrap. `ess` is the effective sample size of the weights, at most
    `draws`. `mean_logratio` is the mean of log(policy / reference) over the same draws, nats. `log_normaliser` is the
    estimate of log sum(policy / reference), `log_weights` those of the draws, `[K]`.
    """

    estimate: float
    low: float
    high: float
    ess: float
    draws: int
    mean_logratio: float
    log_normaliser: float
    log_weights: Tensor

    @property
    def verdict(self) -> float | None:
        """The estimate, or None where fewer than a quarter of the draws carry the weight: it then says nothing."""
        return self.estimate if self.ess >= self.draws / 4 else None

    def describe(self, *, longest: int | None = None) -> str:
        """A sentence with what the number depends on; `longest` is the cap on the draws' length, tokens."""
        cap = "no length cap, without which the entropy is not defined" if longest is None else f"length cap {longest}"
        facts = f"{self.draws} draws, effective sample size {self.ess:.1f}, {cap}"
        if self.verdict is None:
            return f"no estimate: {facts}; the weight lies on fewer than a quarter of the draws."
        return f"{self.estimate:.3f} nats ({self.low:.3f} to {self.high:.3f}); {facts}."


def did_entropy(
    policy_logps: Tensor,
    reference_logps: Tensor,
    *,
    drawn_from: Literal["policy", "reference"],
    resamples: int = 1000,
    generator: torch.Generator | None = None,
) -> DIDEntropy:
    """Self-normalised estimate from K draws of one of the two models.

        log-weights: -log ref(y) for draws from the policy, log r(y) - log ref(y) for draws from the reference
        H = log Z - sum_i w_i log r_i,    w = softmax(log-weights),    r = policy / reference

    with log Z the log-mean-exp of -log ref, or of log r - log ref. Both are exact in the limit, with very different
    variance.

    Shapes: log-probabilities of whole draws `[K]`, nats. Source: arXiv:2505.23761 for the measure; the estimators here
    are standard importance sampling, since the paper's own was not published.
    """
    ratios = policy_logps.double() - reference_logps.double()
    over_reference = -reference_logps.double()  # 1 / ref
    # a draw from the policy has density pi, so q / pi = 1 / (Z ref); from the reference, q / ref = r / (Z ref)
    log_weights = over_reference if drawn_from == "policy" else ratios + over_reference
    count = len(ratios)

    def estimate(weights: Tensor, logratios: Tensor) -> Tensor:
        log_z = weights.logsumexp(-1) - math.log(count)
        return log_z - (weights.softmax(-1) * logratios).sum(-1)

    generator = generator or torch.Generator().manual_seed(0)
    drawn = torch.randint(count, (resamples, count), generator=generator)
    spread = estimate(log_weights[drawn], ratios[drawn])
    shares = log_weights.softmax(-1)
    return DIDEntropy(
        estimate=float(estimate(log_weights, ratios)),
        low=float(spread.quantile(0.025)),
        high=float(spread.quantile(0.975)),
        ess=float(1 / shares.square().sum()),
        draws=count,
        mean_logratio=float(ratios.mean()),
        log_normaliser=float(log_weights.logsumexp(-1) - math.log(count)),
        log_weights=log_weights,
    )
