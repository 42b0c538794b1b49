"""A loss bound to its parameters, and a weighted sum of such losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from prefopt._torch import torch
from prefopt.context import StepContext
from prefopt.errors import ConfigError, Problem
from prefopt.losses._registry import LossSpec, ModifierSpec, Responses, loss_spec, modifier_spec
from prefopt.params import LossParams, shown
from prefopt.scores import LossOutput, Need, Scores


@dataclass(frozen=True)
class Modifier:
    """A registered weighting with its parameters."""

    spec: ModifierSpec
    params: LossParams

    def describe(self) -> dict[str, Any]:
        """Name and parameters as plain data."""
        return {"name": self.spec.name, **self.params.written()}


@dataclass(frozen=True)
class Loss:
    """A registered loss with its parameters, and weightings of its prompts: call it with scores."""

    spec: LossSpec
    params: LossParams
    modifiers: tuple[Modifier, ...] = ()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def needs(self) -> frozenset[Need]:
        return self.spec.needs_for(self.params).union(*(modifier.spec.needs for modifier in self.modifiers))

    @property
    def responses(self) -> Responses:
        return self.spec.responses

    @property
    def coupled(self) -> bool:
        """Whether it reads a context: other prompts, random numbers, the step."""
        return self.spec.coupled_for(self.params)

    @property
    def window(self) -> int:
        """Prompts that it must see together to be more than its plain relative; 0 when it does not compare prompts."""
        return self.spec.window_for(self.params)

    def __call__(self, scores: Scores, context: StepContext | None = None) -> LossOutput:
        """Losses `[B]` of these scores.

        Raises: `ConfigError` when the scores lack what the loss reads.
        """
        check_scores(self, scores)
        given = (context,) if self.spec.coupled else ()
        out = self.spec.function(scores, self.params, *given)
        for modifier in self.modifiers:
            weight = modifier.spec.function(scores, modifier.params).detach()  # [B], a constant by definition
            if weight.shape != out.losses.shape:
                raise ConfigError(
                    f"modifier '{modifier.spec.name}' gave weights of shape {list(weight.shape)} for losses of shape "
                    f"{list(out.losses.shape)}; it must give one number per prompt."
                )
            metrics = {**out.metrics, f"{modifier.spec.name}/weight": weight}
            out = replace(out, losses=weight * out.losses, metrics=metrics)
        return out

    def describe(self) -> dict[str, Any]:
        """Name and parameters as plain data, for run records and checkpoints."""
        modify = [modifier.describe() for modifier in self.modifiers]
        return {"name": self.name, **self.params.written(), **({"modify": modify} if modify else {})}


def get_loss(name: str, /, *, modify: Sequence[str | Mapping[str, Any]] = (), **options: Any) -> Loss:
    """The loss `name` with these hyperparameters, the rest at their defaults.

    `modify` names weightings that multiply each prompt's loss, `["wpo"]` or `[{"name": "wpo", "clamp": False}]`.

    Raises: `ConfigError` for an unknown name, an unknown option or a value out of range, with what was meant.
    """
    spec = loss_spec(name)
    params = spec.params.build(options, where=f"loss '{spec.name}'")
    return Loss(spec, params, _modifiers(modify, spec))


def _modifiers(modify: Any, spec: LossSpec) -> tuple[Modifier, ...]:
    if not isinstance(modify, list | tuple):
        raise ConfigError(Problem(f"modify must be a list of names; got {shown(modify)}.", ("modify",)))
    found = tuple(_modifier(item, number) for number, item in enumerate(modify))
    names = [modifier.spec.name for modifier in found]
    if len(set(names)) < len(names):
        raise ConfigError(Problem(f"modify names a weighting twice: {', '.join(names)}.", ("modify",)))
    if found and (spec.responses != "pair" or not spec.reweightable):
        why = "its prompts are not weighed one by one" if spec.responses == "pair" else "it does not compare a pair"
        raise ConfigError(Problem(f"modify: '{names[0]}' does not go with loss '{spec.name}': {why}.", ("modify",)))
    return found


def _modifier(item: Any, number: int) -> Modifier:
    options = {"name": item} if isinstance(item, str) else item
    if not isinstance(options, Mapping) or not isinstance(options.get("name"), str):
        text = f"modify: a weighting is a name, or a mapping with a name; got {shown(item)}."
        raise ConfigError(Problem(text, ("modify", number)))
    try:
        spec = modifier_spec(options["name"])
        rest = {key: value for key, value in options.items() if key != "name"}
        return Modifier(spec, spec.params.build(rest, where=f"modifier '{spec.name}'"))
    except ConfigError as error:
        raise ConfigError(*(problem.under("modify", number) for problem in error.problems)) from None


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
        _refuse_mixture(losses)
        return cls(losses, weights)

    @property
    def needs(self) -> frozenset[Need]:
        """The union of what the losses read."""
        return frozenset().union(*(loss.needs for loss in self.losses))

    @property
    def coupled(self) -> bool:
        """Whether any loss takes a context."""
        return any(loss.coupled for loss in self.losses)

    @property
    def window(self) -> int:
        """The widest window that a loss asks for; 0 when none compares prompts."""
        return max(loss.window for loss in self.losses)

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
        """The weighted sum of the losses, `[B]`, and each part on its own.

        `context.state`, and the state that comes back, map the names of those losses that keep one to theirs.
        """
        outputs = [loss(scores, _context_of(loss, context)) for loss in self.losses]
        first = outputs[0]
        states = {loss.name: o.state for loss, o in zip(self.losses, outputs, strict=True) if o.state is not None}
        if len(outputs) == 1 and self.weights[0] == 1.0:
            return replace(first, state=states or None)
        total = first.losses * self.weights[0]
        for output, weight in zip(outputs[1:], self.weights[1:], strict=True):
            total = total + weight * output.losses
        pairs = [o for loss, o in zip(self.losses, outputs, strict=True) if loss.responses != "single"]
        return LossOutput(
            losses=total,
            rewards=(pairs or outputs)[0].rewards,
            metrics={name: value for output in outputs for name, value in output.metrics.items()},
            parts={loss.name: out.losses.detach() for loss, out in zip(self.losses, outputs, strict=True)},
            state=states or None,
        )

    def dump_state(self, state: Mapping[str, Any] | None) -> dict[str, Any]:
        """A state as plain data, every digit kept."""
        return {
            name: {f.name: _plain(getattr(own, f.name)) for f in fields(own)} for name, own in (state or {}).items()
        }

    def load_state(self, plain: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The state that `dump_state` wrote."""
        kinds = {loss.name: loss.spec.state for loss in self.losses if loss.spec.state is not None}
        return {name: kinds[name](**{key: _tensor(v) for key, v in own.items()}) for name, own in plain.items()}


def _refuse_mixture(losses: Sequence[Loss]) -> None:
    """Raises: `ConfigError` for losses that cannot read the same rows."""
    many = [loss.name for loss in losses if loss.responses == "many"]
    pair = [loss.name for loss in losses if loss.responses == "pair"]
    labelled = [loss.name for loss in losses if loss.responses == "single" and Need.LABELS in loss.needs]
    if many and pair:
        raise ConfigError(
            f"'{many[0]}' reads any number of responses per prompt and '{pair[0]}' exactly two: no row serves both."
        )
    if labelled and len(labelled) < len(losses):
        other = next(loss.name for loss in losses if loss.name not in labelled)
        raise ConfigError(
            f"'{labelled[0]}' reads single responses with a label, desirable or not, and '{other}' does not: no row "
            "serves both."
        )


def _context_of(loss: Loss, context: StepContext | None) -> StepContext | None:
    if context is None or context.state is None:
        return context
    return replace(context, state=context.state.get(loss.name))


def _plain(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return {"value": value.tolist(), "dtype": str(value.dtype).removeprefix("torch.")}


def _tensor(value: Any) -> Any:
    return torch.tensor(value["value"], dtype=getattr(torch, value["dtype"])) if isinstance(value, Mapping) else value
