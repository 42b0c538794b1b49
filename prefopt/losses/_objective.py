"""A loss bound to its parameters, and a weighted sum of such losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefopt.context import StepContext
from prefopt.errors import ConfigError
from prefopt.losses._registry import LossSpec, Responses, loss_spec
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


@dataclass(frozen=True)
class Loss:
    """A registered loss with its parameters: call it with scores."""

    spec: LossSpec
    params: LossParams

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def needs(self) -> frozenset[Need]:
        return self.spec.needs_for(self.params)

    @property
    def responses(self) -> Responses:
        return self.spec.responses

    def __call__(self, scores: Scores, context: StepContext | None = None) -> LossOutput:
        """Losses `[B]` of these scores.

        Raises: `ConfigError` when the scores lack what the loss reads.
        """
        check_scores(self, scores)
        if self.spec.coupled:
            return self.spec.function(scores, self.params, context)
        return self.spec.function(scores, self.params)

    def describe(self) -> dict[str, Any]:
        """Name and parameters as plain data, for run records and checkpoints."""
        return {"name": self.name, **self.params.model_dump()}


def get_loss(name: str, /, **options: Any) -> Loss:
    """The loss `name` with these hyperparameters, the rest at their defaults.

    Raises: `ConfigError` for an unknown name, an unknown option or a value out of range, with what was meant.
    """
    spec = loss_spec(name)
    return Loss(spec, spec.params.build(options, where=f"loss '{spec.name}'"))


def check_scores(loss: Loss, scores: Scores) -> None:
    """Refuse scores that lack what the loss reads, in a sentence that says what to hand in."""
    responses = scores.policy.shape[1]
    if loss.responses == "pair" and responses != 2:
        raise ConfigError(f"loss '{loss.name}' compares two responses per prompt; got {responses}.")
    for need in sorted(loss.needs):
        if need is Need.TOKENS:
            missing = scores.summed
        elif need is Need.LENGTHS:
            missing = scores.summed and scores.given_lengths is None
        else:
            missing = getattr(scores, need.value) is None
        if missing:
            raise ConfigError(f"loss '{loss.name}' needs {_NEED_WORDS[need]}, and these scores have none.")


_NEED_WORDS = {
    Need.REFERENCE: "reference log-probabilities",
    Need.TOKENS: "per-token log-probabilities, not sums",
    Need.LENGTHS: "response lengths",
    Need.STEPS: "step labels",
    Need.STEP_REWARDS: "step rewards",
    Need.WEIGHTS: "token weights",
    Need.TOKEN_SCORES: "token scores",
    Need.DIFF: "difference masks",
    Need.KL: "the per-position KL between policy and reference",
    Need.SUM_SQUARES: "the sum of squared probabilities per position",
    Need.EXTERNAL: "external reward scores",
    Need.DEVIATION: "deviation weights",
    Need.LABELS: "desirable/undesirable labels",
    Need.MISMATCHED: "log-ratios of mismatched prompts and responses",
}


@dataclass(frozen=True)
class Objective:
    """One loss, or a weighted sum of losses, over the same scores.

    Rewards and metrics of the first loss keep their names; each part of a sum is logged as `loss/NAME`, unweighted.
    """

    losses: tuple[Loss, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, *losses: Loss, weights: Sequence[float] | None = None) -> Objective:
        """Raises: `ConfigError` for no loss, a wrong number of weights, or a loss that stands twice."""
        if not losses:
            raise ConfigError("an objective needs at least one loss.")
        weights = tuple(weights) if weights is not None else (1.0,) * len(losses)
        if len(weights) != len(losses):
            raise ConfigError(f"{len(losses)} losses need {len(losses)} weights; got {len(weights)}.")
        names = [loss.name for loss in losses]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(
                f"loss '{twice[0]}' stands twice in one objective; give it once with the sum of the weights."
            )
        return cls(losses, weights)

    @property
    def needs(self) -> frozenset[Need]:
        """The union of what the losses read."""
        return frozenset().union(*(loss.needs for loss in self.losses))

    @property
    def responses(self) -> Responses:
        """What the data must have: a pair if any loss compares, one response only if all read one."""
        kinds = {loss.responses for loss in self.losses}
        return "many" if "many" in kinds else "pair" if "pair" in kinds else "single"

    @property
    def name(self) -> str:
        return " + ".join(loss.name for loss in self.losses)

    def describe(self) -> list[dict[str, Any]]:
        """Names, parameters and weights as plain data."""
        return [{**loss.describe(), "weight": weight} for loss, weight in zip(self.losses, self.weights, strict=True)]

    def __call__(self, scores: Scores, context: StepContext | None = None) -> LossOutput:
        """The weighted sum of the losses, `[B]`, and each part on its own."""
        if len(self.losses) == 1 and self.weights[0] == 1.0:
            return self.losses[0](scores, context)
        outputs = [loss(scores, context) for loss in self.losses]
        total = outputs[0].losses * self.weights[0]
        metrics: dict[str, Any] = {}
        for output, weight in zip(outputs[1:], self.weights[1:], strict=True):
            total = total + weight * output.losses
        for output in outputs:
            metrics.update(output.metrics)
        parts = {loss.name: out.losses.detach() for loss, out in zip(self.losses, outputs, strict=True)}
        rewards = next(
            (o.rewards for loss, o in zip(self.losses, outputs, strict=True) if loss.responses != "single"),
            outputs[0].rewards,
        )
        states: Mapping[str, Any] = {
            loss.name: o.state for loss, o in zip(self.losses, outputs, strict=True) if o.state is not None
        }
        return LossOutput(losses=total, rewards=rewards, metrics=metrics, parts=parts, state=states or None)
