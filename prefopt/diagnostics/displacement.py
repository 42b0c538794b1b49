"""How far the log-probabilities of chosen and rejected responses have moved from where they started.

A movement is measured against the start of training. The reference's log-probabilities are the start only where the
policy began as the reference; elsewhere keep the initial policy's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

QUADRANTS = ("up_down", "down_down", "up_up", "down_up", "flat")
"""Where (chosen, rejected) went, by number; `flat` where either did not move: a tie is nobody's."""


@dataclass(frozen=True)
class Normalised:
    """One movement in three normalisations, which may differ in sign: never report one without its name.

    `per_response` is the mean over responses of the whole response's movement, nats. `per_token` is the sum over all
    responses divided by all their tokens, nats per token. `mean_per_token` is the mean over responses of each one's
    movement per token, nats per token.
    """

    per_response: Tensor
    per_token: Tensor
    mean_per_token: Tensor


@dataclass(frozen=True)
class Movement:
    """Movement of each pair: `chosen`, `rejected` `[B]` in nats, whole responses; `*_tokens` `[B]` their lengths."""

    chosen: Tensor
    rejected: Tensor
    chosen_tokens: Tensor
    rejected_tokens: Tensor

    @property
    def margin(self) -> Tensor:
        """Chosen minus rejected movement, `[B]`, nats; beta times this is DPO's reward margin."""
        return self.chosen - self.rejected

    @property
    def chosen_per_token(self) -> Tensor:
        """Movement of each chosen response divided by its length, `[B]`, nats per token."""
        return self.chosen / self.chosen_tokens.clamp(min=1)

    @property
    def rejected_per_token(self) -> Tensor:
        """Movement of each rejected response divided by its length, `[B]`, nats per token."""
        return self.rejected / self.rejected_tokens.clamp(min=1)

    @property
    def chosen_dropped(self) -> Tensor:
        """Whether the chosen response became less likely, bool `[B]`."""
        return self.chosen < 0

    @property
    def both_dropped(self) -> Tensor:
        """Whether both responses did, bool `[B]`."""
        return (self.chosen < 0) & (self.rejected < 0)

    @property
    def quadrants(self) -> Tensor:
        """Number in `QUADRANTS` of each pair, int64 `[B]`."""
        up, down = (self.chosen > 0, self.rejected > 0), (self.chosen < 0, self.rejected < 0)
        flat = torch.full(self.chosen.shape, QUADRANTS.index("flat"), device=self.chosen.device)
        found = flat
        for name in QUADRANTS[:-1]:
            first, second = name.split("_")
            inside = (up if first == "up" else down)[0] & (up if second == "up" else down)[1]
            found = torch.where(inside, torch.full_like(flat, QUADRANTS.index(name)), found)
        return found

    def lazy(self, eps: float = 0.0) -> Tensor:
        """Lazy likelihood displacement: whether the chosen response gained less than `eps` nats per token, `[B]`.

        At eps = 0 it equals `chosen_dropped`.
        Source: arXiv:2505.18830, Definition 4.1, there for a whole response.
        """
        return self.chosen < eps * self.chosen_tokens

    def normalised(self) -> tuple[Normalised, Normalised]:
        """Chosen and rejected movement of all pairs together."""
        return normalised(self.chosen, self.chosen_tokens), normalised(self.rejected, self.rejected_tokens)


def movement(policy: Tensor, start: Tensor, mask: Tensor) -> Movement:
    """Movement of pairs from per-token log-probabilities, nats.

    Shapes: policy, start, mask `[B, 2, T]`, chosen first. Masked positions may hold anything. Token by token before
    the sum, in float32 or wider: the difference of two sums in the hundreds would lose digits.
    """
    wide = torch.promote_types(policy.dtype, torch.float32)
    moved = (policy.to(wide) - start.to(wide)).masked_fill(~mask, 0).sum(-1)
    counts = mask.sum(-1)
    return Movement(moved[:, 0], moved[:, 1], counts[:, 0], counts[:, 1])


def normalised(moved: Tensor, tokens: Tensor) -> Normalised:
    """Movement of responses `[B]` in nats, with their lengths `[B]`, in three normalisations."""
    return Normalised(moved.mean(), moved.sum() / tokens.sum().clamp(min=1), (moved / tokens.clamp(min=1)).mean())


def quadrant_counts(quadrants: Tensor) -> dict[str, int]:
    """Pairs in each quadrant, all five named."""
    counts = torch.bincount(quadrants, minlength=len(QUADRANTS)).tolist()
    return dict(zip(QUADRANTS, counts, strict=True))


def ranking_accuracy(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Share of pairs whose chosen response is the likelier one, from log-probabilities `[B]`; a tie is not a win."""
    return (chosen > rejected).double().mean()


def dataset_displaced(*, loss_now: Tensor, loss_start: Tensor, chosen_now: Tensor, chosen_start: Tensor) -> bool:
    """Whether training displaced a data set: its loss fell, and so did the mean log-probability of chosen responses.

    Shapes: means, or one number per pair `[B]`. A falling chosen log-probability alone is no verdict on what a model
    does: look where the mass went.
    Source: arXiv:2410.08847, Definition 1.
    """
    return bool(loss_now.mean() < loss_start.mean()) and bool(chosen_now.mean() < chosen_start.mean())
