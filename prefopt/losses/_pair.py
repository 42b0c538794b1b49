"""The signature other trainers use: summed log-probabilities in, losses and rewards out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefopt._torch import torch
from prefopt.context import StepContext
from prefopt.errors import ConfigError
from prefopt.losses._objective import get_loss
from prefopt.scores import Need, Scores

if TYPE_CHECKING:
    from torch import Tensor


def pair_loss(
    name: str,
    /,
    policy_chosen_logps: Tensor,
    policy_rejected_logps: Tensor,
    reference_chosen_logps: Tensor | None = None,
    reference_rejected_logps: Tensor | None = None,
    *,
    chosen_lengths: Tensor | None = None,
    rejected_lengths: Tensor | None = None,
    context: StepContext | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, chosen rewards and rejected rewards, `[B]` each, from summed log-probabilities `[B]` in nats.

    `options` are the loss's hyperparameters. Lengths `[B]` in tokens are needed by losses that average, and `context`
    by those that look beyond their own pair: `StepContext()` makes the given pairs the whole batch, a gather of yours
    adds those of other ranks, and `step`, `total_steps` and `state` are the training loop's to keep.

    Raises: `ConfigError` when the loss needs something that sums cannot carry, or that was not given.
    """
    loss = get_loss(name, **options)
    reference = _pair("reference", reference_chosen_logps, reference_rejected_logps)
    lengths = _pair("lengths", chosen_lengths, rejected_lengths)
    if Need.LENGTHS in loss.needs and lengths is None:
        raise ConfigError(
            f"loss '{loss.name}' averages over tokens: pass chosen_lengths= and rejected_lengths= ([B], tokens)."
        )
    if Need.REFERENCE in loss.needs and reference is None:
        raise ConfigError(
            f"loss '{loss.name}' needs the reference: pass its chosen and rejected log-probabilities ([B], nats)."
        )
    if loss.responses != "pair" or loss.needs - {Need.LENGTHS, Need.REFERENCE}:
        raise ConfigError(
            f"loss '{loss.name}' reads more than sums of two responses: build prefopt.Scores and call "
            f"get_loss('{name}')."
        )
    if loss.coupled and context is None:  # it would silently be its plain relative
        raise ConfigError(
            f"loss '{loss.name}' looks beyond its own pair: pass context=StepContext(...), where StepContext() takes "
            "the given pairs for the whole batch."
        )
    policy = torch.stack([policy_chosen_logps, policy_rejected_logps], dim=-1)
    out = loss(Scores.from_sums(policy, reference, lengths=lengths), context)
    return out.losses, out.rewards[:, 0], out.rewards[:, 1]


def _pair(what: str, chosen: Tensor | None, rejected: Tensor | None) -> Tensor | None:
    if chosen is None and rejected is None:
        return None
    if chosen is None or rejected is None:
        raise ConfigError(f"{what}: give both sides or neither; got only {'rejected' if chosen is None else 'chosen'}.")
    return torch.stack([chosen, rejected], dim=-1)
