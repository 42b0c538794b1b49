"""The words between a model and a loss: what a loss is given, and what it gives back.

Sizes: B prompts, R responses per prompt (0 is the chosen one), T response tokens, S steps. Log-probabilities are
natural logs, in nats. Position t of `[B, R, T]` is the response's token t: its log-probability, mask, weight, step
index alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from prefopt._torch import torch
from prefopt.errors import DataError, NonFiniteError

if TYPE_CHECKING:
    from torch import Tensor


class Need(StrEnum):
    """What a loss reads beyond the policy's log-probabilities. The value is the field of `Scores` that carries it."""

    REFERENCE = "reference"
    TOKENS = "tokens"  # per-token values; sums do not suffice
    LENGTHS = "lengths"
    STEPS = "steps"
    STEP_REWARDS = "step_rewards"
    WEIGHTS = "weights"
    TOKEN_SCORES = "token_scores"
    DIFF = "diff"
    KL = "kl"
    SUM_SQUARES = "sum_squares"
    EXTERNAL = "external"
    DEVIATION = "deviation"
    LABELS = "labels"
    MISMATCHED = "mismatched"


@dataclass(frozen=True)
class TokenStats:
    """What one model says about a batch of responses, per response token.

    `logps` is `[B, R, T]` in nats, float32 or wider; the optional statistics have the same shape and are there only
    when they were asked for. Positions outside the batch's mask may hold anything. `distributions`, from a scorer that
    was asked for them, are the model's next-token distributions, with which another model's can be compared.
    """

    logps: Tensor
    kl: Tensor | None = None
    sum_squares: Tensor | None = None
    distributions: Any = None

    def against(self, reference: TokenStats | None, *, mask: Tensor, **extras: Any) -> Scores:
        """These policy values beside the reference's, with the batch's mask and columns: what a loss is given."""
        return Scores(
            policy=self.logps,
            reference=None if reference is None else reference.logps.detach(),
            mask=mask,
            kl=self.kl,
            sum_squares=self.sum_squares,
            **extras,
        )


@dataclass(frozen=True)
class Scores:
    """Per-token log-probabilities of a batch of responses under policy and reference, with everything a loss may read.

    Shapes: `policy`, `reference`, `mask`, `steps`, `weights`, `token_scores`, `diff`, `kl`, `sum_squares` `[B, R, T]`;
    `step_rewards` `[B, R, S]`; `external`, `deviation`, `given_lengths` `[B, R]`; `labels`, `mismatched`, `ids` `[B]`.
    `mismatched` is the log-ratio of another prompt's response behind this prompt, nats, NaN where there is none.
    Masked positions may hold anything, `-inf` and `nan` included.

    Raises: `DataError` for a shape that does not fit, and for numbers of the data that are none or out of range;
    `NonFiniteError` with the rows for a log-probability or a divergence inside the mask that is not finite.
    """

    policy: Tensor
    mask: Tensor
    reference: Tensor | None = None
    steps: Tensor | None = None
    step_rewards: Tensor | None = None
    weights: Tensor | None = None
    token_scores: Tensor | None = None
    diff: Tensor | None = None
    kl: Tensor | None = None
    sum_squares: Tensor | None = None
    external: Tensor | None = None
    deviation: Tensor | None = None
    labels: Tensor | None = None
    mismatched: Tensor | None = None
    ids: Tensor | None = None
    given_lengths: Tensor | None = None
    summed: bool = False

    def __post_init__(self) -> None:
        if self.policy.dim() != 3:
            raise DataError(f"Scores.policy must be [B, R, T]; got {list(self.policy.shape)}.")
        if self.mask.dtype != torch.bool:
            object.__setattr__(self, "mask", self.mask.bool())
        if self.labels is not None and self.labels.dtype != torch.bool:
            raise DataError(f"Scores.labels must be bool [B], true for desirable; got {self.labels.dtype}.")
        if self.reference is not None and self.reference.requires_grad:  # a reference is a constant by definition
            object.__setattr__(self, "reference", self.reference.detach())
        for name in ("policy", "reference"):  # losses compute in float32 or wider, whatever the model ran in
            value = getattr(self, name)
            if value is not None and value.dtype in (torch.float16, torch.bfloat16):
                object.__setattr__(self, name, value.float())
        self._check_shapes()
        self._check_finite()

    def _check_shapes(self) -> None:
        shape = tuple(self.policy.shape)
        dimensions = {
            "step_rewards": shape[:2],
            "external": shape[:2],
            "deviation": shape[:2],
            "given_lengths": shape[:2],
        }
        dimensions |= {"labels": shape[:1], "mismatched": shape[:1], "ids": shape[:1]}
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None or item.name == "summed":
                continue
            wanted = dimensions.get(item.name, shape)
            given = tuple(value.shape[:2]) if item.name == "step_rewards" else tuple(value.shape)
            if given != wanted:
                raise DataError(
                    f"Scores.{item.name} must have shape {list(wanted)} beside policy {list(shape)}; got {list(given)}."
                )

        if self.given_lengths is not None and not (self.given_lengths > 0).all():
            raise DataError("Scores.given_lengths must be at least 1 token each.")

    def _check_finite(self) -> None:
        for name in ("policy", "reference", "kl"):
            value = getattr(self, name)
            if value is None:
                continue
            broken = (~torch.isfinite(value) & self.mask).any(-1)  # [B, R]
            if broken.any():
                what = "log-probabilities are" if name != "kl" else "is"
                text = f"{name} {what} not finite ({value.dtype}): {self._places(broken)}."
                raise NonFiniteError(text, rows=sorted({b for b, _ in broken.nonzero().tolist()}))
        self._check_data()

    def _check_data(self) -> None:
        """What came with the data: numbers where a response has tokens, weights that do not turn a loss around."""
        checks: dict[str, tuple[Tensor, str]] = {}
        if self.external is not None:  # a missing response may have any score
            checks["external"] = ~torch.isfinite(self.external) & self.present, "not finite"
        if self.weights is not None:
            bad = ~(torch.isfinite(self.weights) & (self.weights >= 0)) & self.mask
            checks["weights"] = bad.any(-1), "not a finite number of at least 0"
        if self.token_scores is not None:  # NaN marks a token without a score
            checks["token_scores"] = (
                (((self.token_scores < 0) | (self.token_scores > 1)) & self.mask).any(-1),
                "outside 0 to 1",
            )
        if self.deviation is not None:  # only the chosen response's is read
            bad = ~(torch.isfinite(self.deviation) & (self.deviation >= 0)) & self.present
            bad[:, 1:] = False
            checks["deviation"] = bad, "not a finite number of at least 0"
        for name, (broken, how) in checks.items():
            if broken.any():
                raise DataError(f"Scores.{name} is {how}: {self._places(broken)}.")

    def _places(self, broken: Tensor) -> str:
        """The first rows and sides that are broken, bool `[B, R]`."""
        places = broken.nonzero().tolist()
        what = ", ".join(f"row {self._row(b)} {_side(r)}" for b, r in places[:5])
        return what + (f" and {len(places) - 5} more" if len(places) > 5 else "")

    def _row(self, position: int) -> int:
        return position if self.ids is None else int(self.ids[position])

    @classmethod
    def from_sums(
        cls,
        policy: Tensor,
        reference: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        **extras: Any,
    ) -> Scores:
        """Scores for losses that need only whole-response log-probabilities.

        Shapes: `policy`, `reference`, `lengths` `[B, R]`; sums over the response's tokens in nats, lengths in tokens.
        """
        return cls(
            policy=policy.unsqueeze(-1),
            reference=None if reference is None else reference.unsqueeze(-1),
            mask=torch.ones_like(policy, dtype=torch.bool).unsqueeze(-1),
            given_lengths=lengths,
            summed=True,
            **extras,
        )

    @property
    def lengths(self) -> Tensor:
        """Scored tokens per response, `[B, R]`. Counted by mask, never by what is not zero.

        Raises: `DataError` for scores that came from sums without lengths.
        """
        if self.summed and self.given_lengths is None:
            raise DataError("these scores were made from sums: give from_sums(..., lengths=) in tokens, [B, R].")
        counts = self.mask.sum(-1) if self.given_lengths is None else self.given_lengths
        return counts.to(self.policy.dtype)

    @property
    def present(self) -> Tensor:
        """Which responses exist, bool `[B, R]`: a missing one has an empty mask."""
        return self.mask.any(-1)

    @property
    def sums(self) -> Tensor:
        """log pi(response | prompt) under the policy, `[B, R]`, nats."""
        return self.total(self.policy)

    @property
    def reference_sums(self) -> Tensor:
        """log pi_ref(response | prompt), `[B, R]`, nats.

        Raises: `DataError` without a reference.
        """
        return self.total(self._reference())

    @property
    def logratios(self) -> Tensor:
        """log(policy / reference) of whole responses, `[B, R]`, nats.

        Raises: `DataError` without a reference.
        """
        # token by token before the sum: the difference of two sums in the hundreds would lose digits in float32
        return self.total(self.policy - self._reference())

    def _reference(self) -> Tensor:
        if self.reference is None:  # a loss that forgot to declare its need must not train against nothing
            raise DataError("these scores have no reference; a loss that reads one declares Need.REFERENCE.")
        return self.reference

    @property
    def means(self) -> Tensor:
        """Mean log-probability per token of each response, `[B, R]`, nats; 0 for a missing response."""
        return self.sums / self.lengths.clamp(min=1)

    def total(self, values: Tensor) -> Tensor:
        """Sum of per-token values over scored positions, `[B, R, T] -> [B, R]`."""
        # filled, not multiplied: padding may hold -inf, and 0 * inf reaches the gradient
        return values.masked_fill(~self.mask, 0).sum(-1)

    def per_step(self, values: Tensor, *, steps: int) -> Tensor:
        """Sum of per-token values within each step, `[B, R, T] -> [B, R, S]`; step index -1 belongs to no step."""
        if self.steps is None:
            raise DataError("per_step needs step labels, and these scores have none.")
        inside = self.mask & (self.steps >= 0)
        out = values.new_zeros(*values.shape[:2], steps)
        # padding may hold any label, and one beyond the last step would be no index
        return out.scatter_add(-1, self.steps.masked_fill(~inside, 0), values.masked_fill(~inside, 0))


def _side(response: int) -> str:
    return ("chosen", "rejected")[response] if response < 2 else f"response {response}"


@dataclass(frozen=True)
class LossOutput:
    """What a loss gives back, unreduced.

    Shapes: `losses` `[B]`, differentiable; `rewards` `[B, R]` and every metric `[B]`, detached. `parts` holds the
    unweighted losses `[B]` of a sum of losses, detached. `state` is the next state of a loss that keeps one.
    """

    losses: Tensor
    rewards: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    state: Any = None
