"""Token log-probabilities from hidden states, a chunk of tokens at a time.

Only scored positions are projected, and no more than one `[chunk, V]` block of logits exists at any moment: the forward
pass keeps hidden states only, and the backward pass computes each block again. The value and the gradient are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from prefopt.scores import Need
from prefopt.scoring.distributions import Distributions
from prefopt.scoring.heads import Head
from prefopt.scoring.tokens import token_statistics


def chunked_statistics(
    hidden: Tensor,
    labels: Tensor,
    head: Head,
    *,
    chunk: int,
    wanted: Sequence[Need] = (),
    reference: Distributions | None = None,
) -> Tensor:
    """log p(label | hidden) per token, in nats, float32 or wider, and the wanted statistics beside it.

    Shapes: hidden `[N, H]`, labels `[N]` -> `[N, 1 + len(wanted)]`. `chunk` is in tokens. `reference` holds the
    reference's distributions of the same tokens, for those statistics that compare with them.
    """

    def block(hidden: Tensor, part: slice) -> Tensor:
        known = None if reference is None else reference.logits(part)
        return token_statistics(head.logits(hidden), labels[part], wanted, known)

    parts = whole_parts(len(labels), chunk)
    if not torch.is_grad_enabled():
        return torch.cat([block(hidden[part], part) for part in parts])
    again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([again(block, hidden[part], part) for part in parts])


def whole_parts(tokens: int, chunk: int) -> list[slice]:
    """Slices of `chunk` that cover `tokens`, the first of them what is left over: kernels see few different sizes.

    No tokens still give one (empty) slice, so that the head takes part in every rank's backward pass.
    """
    first = tokens % chunk or min(tokens, chunk)
    edges = [0, *range(first, tokens + 1, chunk)]
    return [slice(start, end) for start, end in pairwise(edges)]


def chunk_tokens(vocabulary: int, *, budget: int = 128 * 2**20) -> int:
    """Tokens per chunk so that one float32 block of logits stays within `budget` bytes."""
    return max(16, budget // (4 * vocabulary) // 64 * 64)
