"""Which of many responses a training step compares: all are scored without gradient, and those drawn with it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from prefopt.context import StepContext
from prefopt.data.rows import PER_TOKEN
from prefopt.errors import ConfigError
from prefopt.losses import Loss, Objective
from prefopt.scoring.layout import Batch
from prefopt.scoring.policy import Scorer
from prefopt.scoring.reference import Reference, evaluating
from prefopt.train.step import score_batch


def selecting(objective: Objective | Loss) -> Loss | None:
    """The loss that says which responses a step compares; None when no loss does.

    Raises: `ConfigError` when two losses do.
    """
    losses = (objective,) if isinstance(objective, Loss) else objective.losses
    found = [loss for loss in losses if loss.spec.select is not None]
    if len(found) > 1:
        names = " and ".join(f"'{loss.name}'" for loss in found)
        raise ConfigError(f"losses {names} both draw the responses of a step; an objective can have one of them.")
    return found[0] if found else None


def select(
    model: nn.Module,
    batch: Batch,
    objective: Objective | Loss,
    *,
    scorer: Scorer,
    reference: Reference,
    context: StepContext | None,
) -> Batch:
    """The batch with the responses that the objective's loss draws for this step, the chosen one first.

    The batch as it is when no loss draws, in evaluation, without a context, and without rows. The model is asked in
    evaluation mode, so that neither dropout nor random numbers of training have a part in it.

    Raises: `NonFiniteError` with the rows, when a log-probability is not a number.
    """
    loss = selecting(objective)
    if loss is None or context is None or not context.training or not len(batch["ids"]):
        return batch
    assert loss.spec.select is not None
    with evaluating(model), torch.no_grad():
        scores = score_batch(model, batch, loss.needs, scorer=scorer, reference=reference)
        places = loss.spec.select(scores, loss.params, context)
    return with_responses(batch, places)


def with_responses(batch: Batch, places: Tensor) -> dict[str, Tensor]:
    """The batch with the responses at these places, int64 `[B, R']`; at -1 stands none, with an empty mask.

    Whatever the batch has per response goes along, and padding that no kept response needs is cut off.
    """
    shape = batch["mask"].shape[:2]
    kept = {
        name: _picked(value, places) if value.shape[:2] == shape and not name.startswith("mismatched_") else value
        for name, value in batch.items()
    }
    for name in ("mask", "attention_mask"):
        kept[name] = kept[name].masked_fill((places < 0).unsqueeze(-1), 0)
    widths = dict.fromkeys(("input_ids", "attention_mask"), _used(kept["attention_mask"]))
    widths |= dict.fromkeys(("mask", *PER_TOKEN), _used(kept["mask"]))
    return {name: value[..., : widths[name]] if name in widths else value for name, value in kept.items()}


def _picked(value: Tensor, places: Tensor) -> Tensor:
    index = places.clamp(min=0).view(*places.shape, *([1] * (value.dim() - 2)))
    return value.gather(1, index.expand(*places.shape, *value.shape[2:]))


def _used(mask: Tensor) -> int:
    """Length of the last dimension up to the last place that anything uses, at least 1."""
    used = mask.bool().flatten(0, 1).any(0).nonzero()
    return int(used.max()) + 1 if len(used) else 1
