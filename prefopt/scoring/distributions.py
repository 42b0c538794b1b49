"""What the reference says about the whole vocabulary at each scored token, a slice of tokens at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from prefopt.scoring.heads import Head


@dataclass(frozen=True)
class Distributions:
    """Next-token distributions of K scored tokens, in batch order.

    With a `head`, `values` `[K, H]` are hidden states that it projects when asked; without one they are logits
    `[K, V]`. `standing` makes the model the reference while its head is in use: the weights are the policy's own where
    the reference is the policy with its adapter off.
    """

    values: Tensor
    head: Head | None = None
    standing: Callable[[], AbstractContextManager[None]] = nullcontext

    def logits(self, part: slice) -> Tensor:
        """Logits `[k, V]` of some of the tokens, without gradient."""
        if self.head is None:
            return self.values[part]
        with torch.no_grad(), self.standing():
            return self.head.logits(self.values[part])

    def during(self, standing: Callable[[], AbstractContextManager[None]]) -> Distributions:
        """The same, with the model made the reference by `standing` while its head is in use."""
        return replace(self, standing=standing)
