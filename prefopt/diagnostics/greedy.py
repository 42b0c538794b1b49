"""Squeezing: mass that is pushed off one token goes to the one that is likeliest already."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GreedyTrack:
    """The likeliest token along a response, per position `[...]`.

    `token` is the likeliest one, `logp` its log-probability, nats; `log_rest` is log(1 - its probability), nats.
    """

    token: Tensor
    logp: Tensor
    log_rest: Tensor


def greedy_track(logits: Tensor) -> GreedyTrack:
    """The likeliest token at each position, and how much is left for all others.

    Shapes: logits `[..., V]` -> `[...]`. The argmax is taken anew at each evaluation, as in the authors' code; compare
    `track_of` for a token that stays. The mean of `logp` over a chosen response's positions rising while chosen and
    rejected log-probabilities fall is the sign of squeezing.
    Source: arXiv:2407.10490, Section 4.
    """
    logps = logits.log_softmax(-1)
    top = logps.max(-1)
    # over the others, since log(1 - exp(logp)) has no digits left where the peak is near 1
    rest = logps.scatter(-1, top.indices.unsqueeze(-1), -torch.inf).logsumexp(-1)
    return GreedyTrack(top.indices, top.values, rest)


def track_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probability, nats, of given tokens along a response: those that were greedy at the start, for instance.

    Shapes: logits `[..., V]`, tokens int64 `[...]` -> `[...]`.
    """
    return logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def pushed_down(probabilities: Tensor, token: Tensor, *, eta: float) -> Tensor:
    """Next-token probabilities after one gradient step that lowers one token's log-probability, logits being free.

        z <- z - eta (e_token - p)
        log p'_i / p_i = eta (p_i - [i = token]) - log sum_j p_j exp(eta (p_j - [j = token]))

    The token itself falls and the likeliest other token rises; nothing else is certain.
    Shapes: probabilities `[..., V]`, token int64 `[...]` -> `[..., V]`.
    Source: arXiv:2407.10490, Section 3.3 and its appendix.
    """
    pushed = torch.zeros_like(probabilities).scatter(-1, token.unsqueeze(-1), 1.0)
    return (probabilities.log() - eta * (pushed - probabilities)).softmax(-1)
