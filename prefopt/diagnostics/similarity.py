"""How alike a model sees two responses: centered hidden embedding similarity (CHES) and what it is compared with.

Hidden states are those after the final norm, which the head multiplies. The state that counts for a token is the one
that predicts it: for the first token of a response that is the state of the prompt's last token, and the state after
the last token is not used. The end token counts when it is scored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class StateSums:
    """What is kept of a response's hidden states: their sum `[..., H]`, their number `[...]`, the last one `[..., H]`.

    One of these per response serves every pair that the response is part of.
    """

    sums: Tensor
    counts: Tensor
    last: Tensor

    def __getitem__(self, index: object) -> StateSums:
        return StateSums(self.sums[index], self.counts[index], self.last[index])  # type: ignore[index]

    @property
    def means(self) -> Tensor:
        """Mean state, float64 `[..., H]`; 0 without states."""
        return self.sums.double() / self.counts.clamp(min=1).unsqueeze(-1)


def state_sums(hidden: Tensor, mask: Tensor) -> StateSums:
    """Sums of the states that predict the scored tokens.

    Shapes: hidden `[B, L, H]`, mask bool `[B, L]`, True where
    token t is a scored token of the response, on either side padded. A state that is not used may hold anything.
    Sums are kept in float32 or wider whatever the model runs in: a bfloat16 sum stops growing after a few hundred
    states.
    """
    used = mask[:, 1:].bool()  # token t is predicted by state t - 1
    states = hidden[:, :-1]
    states = states if states.dtype == torch.float64 else states.float()
    counts = used.sum(-1)
    places = torch.arange(used.shape[1], device=used.device)
    last = (used * places).amax(-1)  # 0 without states, and then masked below
    picked = states[torch.arange(len(states), device=states.device), last]
    return StateSums(
        # filled, not multiplied: padding may hold nan
        sums=states.masked_fill(~used.unsqueeze(-1), 0).sum(1),
        counts=counts,
        last=picked.masked_fill((counts == 0).unsqueeze(-1), 0),
    )


@dataclass(frozen=True)
class Similarity:
    """One number per pair, float64 `[...]`; NaN where a response has no states."""

    ches: Tensor
    ln_ches: Tensor
    cosine: Tensor
    last_inner_product: Tensor


def similarity(chosen: StateSums, rejected: StateSums) -> Similarity:
    """All four measures from sums, one number per pair.

        ches    = <S+, S- - S+>            (equals <S+, S-> - |S+|^2)
        ln_ches = <m+, m- - m+>            with m = S / n
        cosine  = <m+, m-> / (|m+| |m-|)
        last_inner_product = <l+, l->      with l the last state in the sum

    Higher means more alike, and by the paper more displacement. The right-hand forms do not subtract two huge numbers.
    Inner products are taken in float64: at a width of 4096 and 500 tokens |S|^2 is about 1e9.
    Source: arXiv:2410.08847, Definitions 2 and 3; the last inner product follows the paper's released script, which
    takes the state that predicts the end token.
    """
    plus, minus = chosen.sums.double(), rejected.sums.double()
    mean_plus, mean_minus = chosen.means, rejected.means
    norms = mean_plus.norm(dim=-1) * mean_minus.norm(dim=-1)
    known = (chosen.counts > 0) & (rejected.counts > 0)

    def where_known(values: Tensor) -> Tensor:
        return values.masked_fill(~known, torch.nan)

    return Similarity(
        ches=where_known(_inner(plus, minus - plus)),
        ln_ches=where_known(_inner(mean_plus, mean_minus - mean_plus)),
        cosine=where_known(_inner(mean_plus, mean_minus) / norms),
        last_inner_product=where_known(_inner(chosen.last.double(), rejected.last.double())),
    )


def _inner(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1)


def ches(chosen_hidden: Tensor, chosen_mask: Tensor, rejected_hidden: Tensor, rejected_mask: Tensor) -> Tensor:
    """CHES of each pair, float64 `[B]`, in squared units of the hidden state. See `similarity`.

    Shapes: hidden `[B, L, H]` and mask `[B, L]` per side, the two sides with lengths of their own; the mask marks
    scored tokens, as in `state_sums`.

    Grows with the length gap: with all states equal to v it is |v|^2 n+ (n- - n+). Rank by `ln_ches`.
    """
    return _both(chosen_hidden, chosen_mask, rejected_hidden, rejected_mask).ches


def ln_ches(chosen_hidden: Tensor, chosen_mask: Tensor, rejected_hidden: Tensor, rejected_mask: Tensor) -> Tensor:
    """Length-normalised CHES of each pair, float64 `[B]`, in squared units of the hidden state. Arguments as `ches`."""
    return _both(chosen_hidden, chosen_mask, rejected_hidden, rejected_mask).ln_ches


def mean_cosine(chosen_hidden: Tensor, chosen_mask: Tensor, rejected_hidden: Tensor, rejected_mask: Tensor) -> Tensor:
    """Cosine of the mean states of each pair, float64 `[B]`, -1 to 1. Arguments as `ches`."""
    return _both(chosen_hidden, chosen_mask, rejected_hidden, rejected_mask).cosine


def last_inner_product(
    chosen_hidden: Tensor, chosen_mask: Tensor, rejected_hidden: Tensor, rejected_mask: Tensor
) -> Tensor:
    """Inner product of the states that predict each side's last scored token, float64 `[B]`. Arguments as `ches`."""
    return _both(chosen_hidden, chosen_mask, rejected_hidden, rejected_mask).last_inner_product


def _both(chosen_hidden: Tensor, chosen_mask: Tensor, rejected_hidden: Tensor, rejected_mask: Tensor) -> Similarity:
    return similarity(state_sums(chosen_hidden, chosen_mask), state_sums(rejected_hidden, rejected_mask))
