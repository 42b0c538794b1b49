"""Where reference log-probabilities come from. A reference is a callable from a batch to per-token values, or to
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from prefopt.errors import ConfigError
from prefopt.scores import TokenStats
from prefopt.scoring.layout import Batch
from prefopt.scoring.modes import evaluating as evaluating
from prefopt.scoring.modes import freeze as freeze
from prefopt.scoring.policy import Scorer


class Reference(Protocol):
    """Per-token values of a batch, with `distributions` those over the vocabulary too, or nothing.

    `describe()` says which reference it is, for the plan, the run record and the checkpoints.
    """

    def __call__(self, batch: Batch, *, distributions: bool = False) -> TokenStats | None: ...

    def describe(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class NoReference:
    """No loss asks for one, so none is loaded."""

    def __call__(self, batch: Batch, *, distributions: bool = False) -> None:
        return None

    def describe(self) -> dict[str, Any]:
        return {"kind": "none"}


@dataclass(frozen=True)
class ModelReference:
    """A second, frozen model: a copy of the policy at its start, or another one."""

    model: nn.Module
    scorer: Scorer
    identity: dict[str, Any] = field(default_factory=dict)

    @torch.no_grad()
    def __call__(self, batch: Batch, *, distributions: bool = False) -> TokenStats:
        with self.standing():
            stats = self.scorer(self.model, batch, distributions=distributions)
        if stats.distributions is None:
            return stats
        return replace(stats, distributions=stats.distributions.during(self.standing))

    def standing(self) -> AbstractContextManager[None]:
        """Inside the block, `model` computes what the reference says."""
        return nullcontext()

    def weights(self) -> dict[str, Tensor]:
        """The values that make this reference, by the policy's parameter names."""
        return {name: parameter.data for name, parameter in self.model.named_parameters()}

    @torch.no_grad()
    def follow(self, policy: nn.Module, mix: float) -> None:
        """Become `mix` * policy + (1 - mix) * this, value by value, computed in float32 or wider.

        Raises: `ConfigError` when the policy has not these parameters.
        """
        ours, theirs = self.weights(), dict(_unwrapped(policy).named_parameters())
        for name, value in ours.items():
            if name not in theirs or theirs[name].shape != value.shape:
                raise ConfigError(f"the reference cannot follow the policy, which has no {name} of its shape.")
            wide = torch.promote_types(value.dtype, torch.float32)
            value.copy_(torch.lerp(value.to(wide), theirs[name].to(value.device, wide), mix))

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Take up the values that `weights` gave earlier.

        Raises: `ConfigError` when they are another model's.
        """
        ours = self.weights()
        if ours.keys() != weights.keys():
            raise ConfigError("the stored reference belongs to another model: its parameters have other names.")
        for name, value in ours.items():
            value.copy_(weights[name])

    def describe(self) -> dict[str, Any]:
        return {"kind": "frozen model", **self.identity}


@dataclass(frozen=True)
class AdapterOffReference(ModelReference):
    """The policy's own base weights, with its new adapter switched off: no second model."""

    KIND = "adapter off"

    def standing(self) -> AbstractContextManager[None]:
        """Inside the block, the adapter is off."""
        return self.model.disable_adapter()  # type: ignore[operator, no-any-return]

    def describe(self) -> dict[str, Any]:
        return {"kind": self.KIND, **self.identity}


@dataclass(frozen=True)
class FrozenTwinReference(ModelReference):
    """The policy with the values its trained parameters had at the start: base plus the adapter that training
    continues.

    `start` holds those values, one per parameter of `parameters`; they stand in while the reference is computed.
    """

    parameters: Sequence[nn.Parameter] = ()
    start: Sequence[Tensor] = ()

    @classmethod
    def of(cls, model: nn.Module, scorer: Scorer, identity: dict[str, Any] | None = None) -> FrozenTwinReference:
        """Freeze the trainable parameters of `model` as they are now."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        return cls(model, scorer, identity or {}, parameters, [p.detach().clone() for p in parameters])

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Inside the block, the parameters hold their first values."""
        # data pointers are exchanged, nothing is copied, and a graph that was built before keeps its parameters
        now = [p.data for p in self.parameters]
        for parameter, value in zip(self.parameters, self.start, strict=True):
            parameter.data = value.to(parameter.device)
        try:
            yield
        finally:
            for parameter, data in zip(self.parameters, now, strict=True):
                parameter.data = data

    def weights(self) -> dict[str, Tensor]:
        """The trained parameters' values at the start, or where the reference has moved since."""
        names = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        return dict(zip(names, self.start, strict=True))

    def describe(self) -> dict[str, Any]:
        return {"kind": "base plus frozen starting adapter", **self.identity}


def _unwrapped(model: nn.Module) -> nn.Module:
    """Without what a launcher wraps around it; an adapter stays."""
    while isinstance(model, nn.parallel.DistributedDataParallel) or type(model).__name__ == "DeepSpeedEngine":
        model = model.module  # type: ignore[assignment]
    return model
