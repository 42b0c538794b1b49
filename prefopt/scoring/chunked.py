"""Token log-probabilities from hidden states, a chunk of tokens at a time.

Only scored positions are projected, and no more than one `[chunk, V]` block of logits exists at any moment: the forward
pass keeps hidden states only, and the backward pass computes each block again. The value and the gradient are exact.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from prefopt.scoring.heads import Head
from prefopt.scoring.tokens import token_logps


def chunked_logps(hidden: Tensor, labels: Tensor, head: Head, *, chunk: int) -> Tensor:
    """log p(label | hidden) per token, in nats, float32 or wider.

    Shapes: hidden `[N, H]`, labels `[N]` -> `[N]`. `chunk` is in tokens.
    """
    if not torch.is_grad_enabled():
        parts = [token_logps(head.logits(h), y) for h, y in _chunks(hidden, labels, chunk)]
    else:
        parts = [_recomputed(h, y, head) for h, y in _chunks(hidden, labels, chunk)]
    return torch.cat(parts)


def _recomputed(hidden: Tensor, labels: Tensor, head: Head) -> Tensor:
    def block(hidden: Tensor) -> Tensor:
        return token_logps(head.logits(hidden), labels)

    return checkpoint(block, hidden, use_reentrant=False, preserve_rng_state=False)  # type: ignore[no-any-return]


def _chunks(hidden: Tensor, labels: Tensor, chunk: int) -> list[tuple[Tensor, Tensor]]:
    # an empty batch still gives one (empty) block, so that the head takes part in every rank's backward pass
    return list(zip(hidden.split(chunk), labels.split(chunk), strict=True)) if len(labels) else [(hidden, labels)]


def chunk_tokens(vocabulary: int, *, budget: int = 64 * 2**20) -> int:
    """Tokens per chunk so that one float32 block of logits stays within `budget` bytes."""
    return max(16, budget // (4 * vocabulary))
