"""Token weights of the step- and token-level losses, and the weighted log-ratio that they enter.

A weight is a constant `[B, R, T]`: no gradient flows into it, and outside the mask it is 0. S steps per response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefopt._torch import torch
from prefopt.scores import Scores

if TYPE_CHECKING:
    from torch import Tensor

WRONG_BELOW = 0.5
"""A step with a lower reward is a wrong one."""


def token_logratios(scores: Scores) -> Tensor:
    """log(policy / reference) per token, `[B, R, T]`, nats; anything outside the mask."""
    assert scores.reference is not None  # a declared need, checked before the call
    return scores.policy - scores.reference


def weighted_logratios(scores: Scores, weights: Tensor) -> Tensor:
    """Sum over tokens of weight times log-ratio, `[B, R, T] -> [B, R]`, nats."""
    return scores.total(constant(scores, weights) * token_logratios(scores))


def constant(scores: Scores, weights: Tensor) -> Tensor:
    """The weights without gradient, in the loss's dtype, 0 outside the mask, whatever stood there."""
    return weights.detach().to(scores.policy.dtype).masked_fill(~scores.mask, 0)


# ------------------------------------------------------------------------------------------------------------- steps


def step_index(scores: Scores) -> Tensor:
    """Step of each scored token, int64 `[B, R, T]`; -1 for a token in no step and outside the mask."""
    assert scores.steps is not None  # a declared need, checked before the call
    return scores.steps.masked_fill(~scores.mask, -1)


def step_rewards(scores: Scores) -> tuple[Tensor, Tensor]:
    """Rewards `[B, R, S]` in the loss's dtype, 0 for steps without scored tokens, and which steps have some."""
    assert scores.step_rewards is not None  # a declared need, checked before the call
    rewards, index = scores.step_rewards.detach().to(scores.policy.dtype), step_index(scores)
    count = rewards.shape[-1]
    there = torch.zeros(*index.shape[:2], count + 1, dtype=torch.bool, device=index.device)
    own = there.scatter(-1, index.masked_fill(index < 0, count), True)[..., :count]
    return rewards.masked_fill(~own, 0), own


def first_wrong_step(scores: Scores) -> Tensor:
    """The first step of the rejected response with a reward below one half, int64 `[B]`; -1 when there is none."""
    rewards, own = step_rewards(scores)
    wrong = (own & (rewards < WRONG_BELOW))[:, 1]  # [B, S]
    return torch.where(wrong.any(-1), wrong.int().argmax(-1), -1)


def of_step(scores: Scores, step: Tensor) -> Tensor:
    """1 for tokens of this step, `[B] -> [B, R, T]`; every token where the step is -1."""
    number = step.view(-1, 1, 1)
    return torch.where(number >= 0, step_index(scores) == number, scores.mask)


def from_step(scores: Scores, step: Tensor) -> Tensor:
    """1 from the first token of this step on, tokens in no step included, `[B] -> [B, R, T]`; every token for -1."""
    number = step.view(-1, 1, 1)
    begun = (step_index(scores) >= number).cumsum(-1) > 0  # a token in no step counts with what it follows
    return torch.where(number >= 0, begun, scores.mask)


def spread_steps(scores: Scores, weights: Tensor, own: Tensor) -> Tensor:
    """A weight per step put on the step's tokens, `[B, R, S] -> [B, R, T]`.

    A token in no step, such as the end token, gets the mean over the response's own steps; a response without steps
    is one step, of weight 1.
    """
    index, count = step_index(scores), own.sum(-1, keepdim=True)
    mean = torch.where(count > 0, weights.sum(-1, keepdim=True) / count.clamp(min=1), 1)
    return torch.where(index >= 0, weights.gather(-1, index.clamp(min=0)), mean)


def softmax_over(logits: Tensor, there: Tensor) -> Tensor:
    """Softmax over the last dimension among the entries that are there; 0 for the others, and where there are none."""
    weights = torch.softmax(logits.masked_fill(~there, -torch.inf), -1)
    return torch.where(there, weights, 0)  # a row without entries is nan until here


# ------------------------------------------------------------------------------------------------------------ tokens


def contrast_weights(scores: Scores) -> tuple[Tensor, Tensor]:
    """Scores s `[B, R, T]` of the tokens and 1 - s; both 1 for a token without a score (NaN), such as the end token."""
    assert scores.token_scores is not None  # a declared need, checked before the call
    found, missing = scores.token_scores, torch.isnan(scores.token_scores)
    return found.masked_fill(missing, 1), (1 - found).masked_fill(missing, 1)


def difference_weights(logps: Tensor, diff: Tensor, delta: float) -> Tensor:
    """1 + diff * min(1 / p, delta) per token, with p the token's probability, `[B, R, T]`; a constant."""
    rarity = torch.exp(-logps.detach()).clamp(max=delta)  # infinite for very unlikely tokens, hence clamped
    return 1 + torch.where(diff.bool(), rarity, 0)


# --------------------------------------------------------------------------------------------------------- responses


def deviation_weights(deviations: Tensor) -> Tensor:
    """Deviations of a prompt's responses above the least one, over the mean of that, `[B, R] -> [B, R]`.

    That is the min-max scaled deviation over its mean: the scale cancels. 1 where all are equal.
    """
    above = deviations - deviations.amin(-1, keepdim=True)
    mean = above.mean(-1, keepdim=True)
    return torch.where(mean > 0, above / mean.masked_fill(mean == 0, 1), 1)


def chosen_deviation(scores: Scores) -> Tensor:
    """Deviation weight of the chosen response, `[B]`, a constant."""
    assert scores.deviation is not None  # a declared need, checked before the call
    return scores.deviation[:, 0].detach().to(scores.policy.dtype)
