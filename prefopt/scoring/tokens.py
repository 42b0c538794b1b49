"""The definition of a token's log-probability, for reading and for tests."""

from __future__ import annotations

import torch
from torch import Tensor


def token_logps(logits: Tensor, labels: Tensor) -> Tensor:
    """log softmax(logits) at the labels, in nats, computed in float32 or wider.

    Shapes: logits `[..., V]`, labels `[...]` -> `[...]`. The logits stand at the position that predicts the label:
    shift before calling.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    # the difference of two numbers per token instead of a log-softmax over the vocabulary, which would be a second
    # [..., V]
    return logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)
