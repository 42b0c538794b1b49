"""The arithmetic of one step, without a Trainer: score, compare with the reference, ask the objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prefopt.context import StepContext
from prefopt.errors import NonFiniteError
from prefopt.losses import Loss, Objective
from prefopt.scores import LossOutput, Need, Scores
from prefopt.scoring.policy import STATISTICS, Batch, Scorer
from prefopt.scoring.reference import Reference

_COLUMNS = {
    name: name for name in ("steps", "step_rewards", "weights", "token_scores", "diff", "external", "deviation")
}
_COLUMNS["desirable"] = "labels"  # Trainer would take a column `labels` for targets of its own


@dataclass(frozen=True)
class Step:
    """What a step computed: the loss's output and the scores it was given."""

    out: LossOutput
    scores: Scores


def preference_step(
    model: nn.Module,
    batch: Batch,
    objective: Objective | Loss,
    *,
    scorer: Scorer,
    reference: Reference,
    context: StepContext | None = None,
) -> Step:
    """Losses of one batch, `[B]`, unreduced.

    Raises: `NonFiniteError` with the rows, when a log-probability or a loss is not a number.
    """
    wanted = objective.needs & STATISTICS
    # the reference comes before the policy's graph exists, so that both do not stand in memory at once
    known = reference(batch, distributions=Need.KL in wanted)
    policy = scorer(model, batch, wanted=wanted, reference=None if known is None else known.distributions)
    columns = {field: batch[name] for name, field in _COLUMNS.items() if name in batch}
    scores = policy.against(known, mask=batch["mask"], ids=batch["ids"], **columns)
    out = objective(scores, context)
    broken = ~torch.isfinite(out.losses.detach())
    if broken.any():
        rows = broken.nonzero().flatten().tolist()
        raise NonFiniteError(f"the loss is not finite ({out.losses.dtype}).", rows=rows)
    return Step(out, scores)


def without_rows(batch: Batch, rows: tuple[int, ...]) -> dict[str, Tensor]:
    """The batch without these positions; it may be empty."""
    size = len(batch["ids"])
    keep = torch.tensor([i for i in range(size) if i not in set(rows)], dtype=torch.long, device=batch["ids"].device)
    return {name: value[keep] for name, value in batch.items()}


def describe_rows(batch: Batch, rows: tuple[int, ...], name_of: Callable[[int], str]) -> str:
    """The ids of these positions, for a message."""
    names = [name_of(int(batch["ids"][row])) for row in rows]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
