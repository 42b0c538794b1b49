"""The arithmetic of one step, without a Trainer: score, compare with the reference, ask the objective."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from prefopt.context import StepContext
from prefopt.errors import NonFiniteError
from prefopt.losses import Loss, Objective
from prefopt.scores import LossOutput, Need, Scores
from prefopt.scoring.layout import Batch
from prefopt.scoring.policy import STATISTICS, Scorer
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


def score_batch(
    model: nn.Module, batch: Batch, needs: Collection[Need], *, scorer: Scorer, reference: Reference
) -> Scores:
    """What a loss with these needs is given of one batch, policy values with their gradient.

    Raises: `NonFiniteError` with the rows, when a log-probability is not a number.
    """
    wanted = STATISTICS.intersection(needs)
    # the reference comes before the policy's graph exists, so that both do not stand in memory at once
    known = reference(batch, distributions=Need.KL in wanted)
    columns = {field: batch[name] for name, field in _COLUMNS.items() if name in batch}
    if Need.MISMATCHED in needs:
        columns["mismatched"] = mismatched_logratios(model, batch, scorer=scorer, reference=reference)
    policy = scorer(model, batch, wanted=wanted, reference=None if known is None else known.distributions)
    return policy.against(known, mask=batch["mask"], ids=batch["ids"], **columns)


@torch.no_grad()
def mismatched_logratios(model: nn.Module, batch: Batch, *, scorer: Scorer, reference: Reference) -> Tensor:
    """log(policy / reference) of another prompt's response behind each prompt, `[B]` in nats.

    NaN in evaluation, where batches carry none: there a loss must not read them.
    """
    if "mismatched_input_ids" not in batch:
        return torch.full(batch["ids"].shape, torch.nan, device=batch["ids"].device)
    other = {name: batch[f"mismatched_{name}"] for name in ("input_ids", "attention_mask", "mask")}
    other["prompt_lengths"] = batch["prompt_lengths"]
    known = reference(other)
    assert known is not None  # whoever needs mismatched pairs needs a reference
    return (scorer(model, other).logps - known.logps).masked_fill(~other["mask"], 0).sum((1, 2))


def nothing(batch: Batch, needs: Collection[Need]) -> Scores:
    """The scores of a batch of no rows, with which a rank takes part where the others have some."""
    mask = batch["mask"]
    values = mask.new_zeros(mask.shape, dtype=torch.float32)
    per_token: dict[str, Any] = {need.value: values for need in (Need.REFERENCE, *STATISTICS) if need in needs}
    columns: dict[str, Any] = {field: batch[name] for name, field in _COLUMNS.items() if name in batch}
    if Need.MISMATCHED in needs:
        columns["mismatched"] = values.new_zeros(0)
    return Scores(policy=values.clone().requires_grad_(), mask=mask, ids=batch["ids"], **per_token, **columns)


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
    scores = score_batch(model, batch, objective.needs, scorer=scorer, reference=reference)
    return Step(evaluated(objective, scores, context), scores)


def evaluated(objective: Objective | Loss, scores: Scores, context: StepContext | None = None) -> LossOutput:
    """The objective's output.

    Raises: `NonFiniteError` with the rows, when a loss is not a number.
    """
    out = objective(scores, context)
    broken = ~torch.isfinite(out.losses.detach())
    if broken.any():
        rows = broken.nonzero().flatten().tolist()
        raise NonFiniteError(f"the loss is not finite ({out.losses.dtype}).", rows=rows)
    return out


def slopes_of(step: Step) -> Tensor | None:
    """The derivative of the losses in the policy's log-probabilities, `[B, R, T]`; None where no gradient is kept.

    It goes back through the loss alone, not through the model.
    """
    if not step.out.losses.requires_grad:
        return None
    (slopes,) = torch.autograd.grad(
        step.out.losses.sum(), step.scores.policy, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return slopes


def without_rows(batch: Batch, rows: tuple[int, ...]) -> dict[str, Tensor]:
    """The batch without these positions; it may be empty."""
    size = len(batch["ids"])
    keep = torch.tensor([i for i in range(size) if i not in set(rows)], dtype=torch.long, device=batch["ids"].device)
    return {name: value[keep] for name, value in batch.items()}


def describe_rows(batch: Batch, rows: tuple[int, ...], name_of: Callable[[int], str]) -> str:
    """The ids of these positions, for a message."""
    names = [name_of(int(batch["ids"][row])) for row in rows]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
