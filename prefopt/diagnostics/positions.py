"""What changed in the next-token distributions along a response, position by position, over the whole vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PositionChanges:
    """One number per position, `[...]`; policy against start.

    `kl` is KL(policy || start), `reverse_kl` KL(start || policy), `entropy` and `start_entropy` those of each
    distribution, all in nats; `total_variation` is half the sum of absolute differences, 0 to 1.
    `label_probability_change` and `label_logp_change` (nats) are those of the response's own token; `label_rank` is its
    place among the gains in probability, 0 for the token that gained most. `gainer` is that token and `gain` its gain.
    `other_mass` and `start_other_mass` are the mass on neither label nor, where given, rival.
    """

    kl: Tensor
    reverse_kl: Tensor
    entropy: Tensor
    start_entropy: Tensor
    total_variation: Tensor
    label_probability_change: Tensor
    label_logp_change: Tensor
    label_rank: Tensor
    gainer: Tensor
    gain: Tensor
    other_mass: Tensor
    start_other_mass: Tensor


def position_changes(
    policy_logits: Tensor, start_logits: Tensor, labels: Tensor, *, rivals: Tensor | None = None
) -> PositionChanges:
    """Compare two models' next-token distributions at the positions that predict `labels`.

    Shapes: logits `[..., V]`, labels and rivals int64 `[...]` -> `[...]`. In float32 or wider: convert before calling.
    The divergences are exact at each prefix, and the prefixes are the data's, not the policy's own.
    """
    now, then = policy_logits.log_softmax(-1), start_logits.log_softmax(-1)
    p, q = now.exp(), then.exp()
    gains = p - q
    top = gains.max(-1)
    mine = _at(gains, labels)
    known = labels.unsqueeze(-1) if rivals is None else torch.stack([labels, rivals], -1)
    return PositionChanges(
        kl=(p * (now - then)).sum(-1),
        reverse_kl=(q * (then - now)).sum(-1),
        entropy=-(p * now).sum(-1),
        start_entropy=-(q * then).sum(-1),
        total_variation=gains.abs().sum(-1) / 2,
        label_probability_change=mine,
        label_logp_change=_at(now - then, labels),
        label_rank=(gains > mine.unsqueeze(-1)).sum(-1),
        gainer=top.indices,
        gain=top.values,
        other_mass=p.scatter(-1, known, 0).sum(-1),
        start_other_mass=q.scatter(-1, known, 0).sum(-1),
    )


def _at(values: Tensor, tokens: Tensor) -> Tensor:
    return values.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True)
class SampledKL:
    """Estimates of KL(policy || start) from one token each, nats `[...]`: unbiased (`k1`), two with less variance."""

    k1: Tensor
    k2: Tensor
    k3: Tensor


def sampled_kl(logratios: Tensor) -> SampledKL:
    """k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d with d = log(policy / start) of a token, nats.

    Estimates of a divergence only for tokens drawn from the policy; over a data set's responses the mean of d is a
    log-ratio and no divergence.
    """
    return SampledKL(logratios, logratios.square() / 2, (-logratios).expm1() + logratios)
