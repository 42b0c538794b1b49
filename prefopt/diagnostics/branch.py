"""Where two responses part: one next-token distribution holds both tokens, and shows where their mass went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prefopt.diagnostics.pairs import common_prefix


@dataclass(frozen=True)
class BranchPlace:
    """The first place where two responses differ, and the token of each there."""

    position: int
    chosen: int
    rejected: int


def branch_place(chosen: Sequence[int], rejected: Sequence[int]) -> BranchPlace | None:
    """Where two responses part, by token id.

    None for equal responses, and where one that has no end token is the beginning of the other: it has no token there.
    With end tokens that case is the choice between ending and going on.
    """
    position = common_prefix(chosen, rejected)
    if position >= min(len(chosen), len(rejected)):
        return None
    return BranchPlace(position, chosen[position], rejected[position])


@dataclass(frozen=True)
class BranchPoint:
    """Probabilities at branch points under the policy (`now`) and where it started, `[B]` each.

    `other` is the mass on neither of the two tokens. `greedy` is the likeliest token and `greedy_probability` its
    probability. `gainer` is the token whose probability grew most, by `gain`, and `gainer_is_third` says that it is
    neither of the pair's, and false where none gained.
    """

    chosen_now: Tensor
    chosen_start: Tensor
    rejected_now: Tensor
    rejected_start: Tensor
    other_now: Tensor
    other_start: Tensor
    greedy_now: Tensor
    greedy_start: Tensor
    greedy_probability_now: Tensor
    greedy_probability_start: Tensor
    gainer: Tensor
    gain: Tensor
    gainer_is_third: Tensor

    @property
    def chosen_change(self) -> Tensor:
        """Change of the chosen token's probability, `[B]`."""
        return self.chosen_now - self.chosen_start

    @property
    def rejected_change(self) -> Tensor:
        """Change of the rejected token's probability, `[B]`."""
        return self.rejected_now - self.rejected_start


def branch_point(policy: Tensor, start: Tensor, chosen: Tensor, rejected: Tensor) -> BranchPoint:
    """Where the mass went at the place where two responses part.

    Shapes: policy, start `[B, V]`, next-token probabilities; chosen, rejected int64 `[B]`, the tokens there.
    Source: the single-token experiments of arXiv:2410.08847, Section 3, at the first token that differs.
    """

    def at(probabilities: Tensor, tokens: Tensor) -> Tensor:
        return probabilities.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    gain, gainer = (policy - start).max(-1)
    greedy_now, greedy_start = policy.max(-1), start.max(-1)
    return BranchPoint(
        chosen_now=at(policy, chosen),
        chosen_start=at(start, chosen),
        rejected_now=at(policy, rejected),
        rejected_start=at(start, rejected),
        # summed over the others: 1 minus the two would lose what is left when they hold nearly all
        other_now=_others(policy, chosen, rejected),
        other_start=_others(start, chosen, rejected),
        greedy_now=greedy_now.indices,
        greedy_start=greedy_start.indices,
        greedy_probability_now=greedy_now.values,
        greedy_probability_start=greedy_start.values,
        gainer=gainer,
        gain=gain,
        gainer_is_third=(gain > 0) & (gainer != chosen) & (gainer != rejected),
    )


def _others(probabilities: Tensor, *tokens: Tensor) -> Tensor:
    return probabilities.scatter(-1, torch.stack(tokens, -1), 0).sum(-1)
