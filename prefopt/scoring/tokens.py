"""The definition of what is said about a token, for reading and for tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from prefopt.scores import Need


def token_logps(logits: Tensor, labels: Tensor) -> Tensor:
    """log softmax(logits) at the labels, in nats, computed in float32 or wider.

    Shapes: logits `[..., V]`, labels `[...]` -> `[...]`. The logits stand at the position that predicts the label:
    shift before calling.
    """
    logits = wide(logits)
    # the difference of two numbers per token instead of a log-softmax over the vocabulary, which would be a second
    # [..., V]
    return logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)


def token_kl(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(reference || policy) of two next-token distributions, in nats: sum_v ref(v) (log ref(v) - log policy(v)).

    Shapes: logits of both `[..., V]` -> `[...]`. The gradient reaches the policy's logits only.
    """
    known = wide(reference).detach().log_softmax(-1)
    return (known.exp() * (known - wide(logits).log_softmax(-1))).sum(-1)


def token_sum_squares(logits: Tensor) -> Tensor:
    """sum_v policy(v)^2, the probability that two draws agree; without gradient.

    Shapes: `[..., V]` -> `[...]`.
    """
    logits = wide(logits).detach()
    return ((2 * logits).logsumexp(-1) - 2 * logits.logsumexp(-1)).exp()


def token_statistics(
    logits: Tensor, labels: Tensor, wanted: Sequence[Need] = (), reference: Tensor | None = None
) -> Tensor:
    """Log-probabilities and what else is wanted, side by side: `[N, V]` -> `[N, 1 + len(wanted)]`."""
    columns = [token_logps(logits, labels)]
    for need in wanted:
        if need is Need.KL:
            assert reference is not None
            columns.append(token_kl(logits, reference))
        else:
            columns.append(token_sum_squares(logits))
    return torch.stack(columns, -1)


def wide(values: Tensor) -> Tensor:
    """The values in float32, or in float64 if they are."""
    return values if values.dtype == torch.float64 else values.float()
