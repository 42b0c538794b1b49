"""The registry: a name, a function, its parameter model, and what it needs.

Discovery is the folder: every module of `prefopt.losses` without a leading underscore is imported at the first look-up
and registers its loss. Plug-ins follow, from the entry-point group `prefopt.losses`; each value names a module to
import.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal, Protocol

from prefopt.context import StepContext
from prefopt.errors import ConfigError, did_you_mean
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

if TYPE_CHECKING:
    from torch import Tensor

Responses = Literal["single", "pair", "many"]
Needs = frozenset[Need]
Select = Callable[[Scores, Any, StepContext], "Tensor"]
"""Scores of all responses, parameters, context -> places of those to compare, int64 `[B, R']`, -1 for none."""

AMBIGUOUS = {
    "cdpo": "cdpo (critical tokens) or dpo (conservative DPO, with label_smoothing)",
    "rdpo": "robust_dpo (known label-flip rate), refined_dpo (external reward scores) or r_dpo (length regularised)",
    "r-dpo": "r_dpo (length regularised), robust_dpo (known label-flip rate) or refined_dpo (external reward scores)",
    "rpo": "irpo (DPO plus NLL), robust_dpo (known label-flip rate) or refined_dpo (external reward scores)",
    "ndpo": "ln_dpo (log-ratio per token) or nca_pair (noise contrastive)",
    "ldpo": "ln_dpo (log-ratio per token), ld_dpo (excess length discounted) or r_dpo (length regularised)",
    "tdpo": "tdpo1 (both KLs in the margin) or tdpo2 (weighted, the chosen KL held fixed)",
    "apo": "apo_zero (chosen responses better than the model) or apo_down (worse than the model)",
}
"""Abbreviations that name more than one method: they get an error that lists what they may mean."""


class LossFunction(Protocol):
    """`loss(scores, params)`, or `loss(scores, params, context)` for a batch-coupled loss."""

    __name__: str

    def __call__(self, scores: Scores, params: Any, /) -> LossOutput: ...


def _across_ranks(_: Any) -> bool:
    return False


@dataclass(frozen=True)
class LossSpec:
    """One registered loss."""

    name: str
    function: Callable[..., LossOutput]
    params: type[LossParams]
    needs: Needs | Callable[[Any], Iterable[Need]]
    source: str
    responses: Responses = "pair"
    aggregate: Literal["sum", "mean"] = "sum"
    coupled: bool | Callable[[Any], bool] = False
    window: int | Callable[[Any], int] = 0
    window_per_rank: Callable[[Any], bool] = _across_ranks
    state: type | None = None
    reweightable: bool = True
    select: Select | None = None
    aliases: tuple[str, ...] = ()
    origin: str = "prefopt"
    excused: Mapping[str, str] = field(default_factory=dict)

    def needs_for(self, params: LossParams) -> Needs:
        """What the loss reads with these parameters."""
        needs = self.needs(params) if callable(self.needs) else self.needs
        return frozenset(needs)

    def coupled_for(self, params: LossParams) -> bool:
        """Whether the loss reads a context with these parameters."""
        return self.coupled(params) if callable(self.coupled) else self.coupled

    def window_for(self, params: LossParams) -> int:
        """Prompts that the loss must see together with these parameters, 0 when it does not compare prompts."""
        return self.window(params) if callable(self.window) else self.window

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]


@dataclass(frozen=True)
class ModifierSpec:
    """One registered weighting: a function from scores to a constant weight per prompt, for any pair loss."""

    name: str
    function: Callable[[Scores, Any], Tensor]
    params: type[LossParams]
    needs: Needs
    source: str

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]


_specs: dict[str, LossSpec] = {}
_modifiers: dict[str, ModifierSpec] = {}
_aliases: dict[str, str] = {}
_broken_plugins: dict[str, str] = {}
_importing: list[str] = ["prefopt"]


def register_loss(
    name: str,
    *,
    params: type[LossParams],
    needs: Iterable[Need] | Callable[[Any], Iterable[Need]] = (),
    source: str,
    responses: Responses = "pair",
    aggregate: Literal["sum", "mean"] = "sum",
    coupled: bool | Callable[[Any], bool] = False,
    window: int | Callable[[Any], int] = 0,
    window_per_rank: Callable[[Any], bool] = _across_ranks,
    state: type | None = None,
    reweightable: bool = True,
    select: Select | None = None,
    aliases: Iterable[str] = (),
    excused: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., LossOutput]], Callable[..., LossOutput]]:
    """Register the decorated function as the loss `name`.

    `needs` is a set, or a function of the parameters. `responses` says whether it reads one response per prompt, a
    pair, or any number. `aggregate` says whether token log-probabilities are summed or averaged per response, which is
    what decides whether two values of `beta` compare. `coupled` losses take a third argument, `context`; a function of
    the parameters says with which of them it is read. `window`, a number or a function of the parameters, says how many
    prompts a coupled loss must see together to be more than its plain relative: 0 when it does not compare prompts, 1
    when it does and means something with one; `window_per_rank` whether each rank is by itself. A loss that keeps a
    state names its class, a frozen dataclass of scalars that starts as `state()`. `reweightable` is False where the
    entries of `losses` are not each prompt's own, so that weights cannot be put on them. `select` is a function that
    says which of many responses a training step compares; they are scored without gradient for it first. `excused` maps
    a property of `prefopt.testing.check_loss` that does not apply to the reason why.

    Raises: `ConfigError` when the name or an alias is taken.
    """

    def register(function: Callable[..., LossOutput]) -> Callable[..., LossOutput]:
        spec = LossSpec(
            name=name,
            function=function,
            params=params,
            needs=needs if callable(needs) else frozenset(needs),
            source=source,
            responses=responses,
            aggregate=aggregate,
            coupled=coupled,
            window=window,
            window_per_rank=window_per_rank,
            state=state,
            reweightable=reweightable,
            select=select,
            aliases=tuple(aliases),
            origin=_importing[-1],
            excused=dict(excused or {}),
        )
        for word in (name, *spec.aliases):
            owner = _specs.get(_aliases.get(word, word))
            if owner is not None:
                raise ConfigError(f"loss name '{word}' of {spec.origin} is taken by '{owner.name}' of {owner.origin}.")
        _specs[name] = spec
        _aliases.update(dict.fromkeys(spec.aliases, name))
        return function

    return register


def register_modifier(
    name: str, *, params: type[LossParams], needs: Iterable[Need] = (), source: str
) -> Callable[[Callable[[Scores, Any], Tensor]], Callable[[Scores, Any], Tensor]]:
    """Register the decorated function, scores and params -> detached weights `[B]`, for `modify: [name]`.

    Raises: `ConfigError` when the name is taken.
    """

    def register(function: Callable[[Scores, Any], Tensor]) -> Callable[[Scores, Any], Tensor]:
        if name in _modifiers:
            raise ConfigError(f"modifier name '{name}' is taken.")
        _modifiers[name] = ModifierSpec(name, function, params, frozenset(needs), source)
        return function

    return register


def modifier_names() -> list[str]:
    """Names of every registered modifier, sorted."""
    _discover_own()
    _discover_plugins()
    return sorted(_modifiers)


def modifier_spec(name: str) -> ModifierSpec:
    """The registered modifier of that name.

    Raises: `ConfigError` with a suggestion for an unknown name.
    """
    known = modifier_names()
    if name not in _modifiers:
        raise ConfigError(f"unknown modifier '{name}'.{did_you_mean(name, known)} Modifiers: {', '.join(known)}.")
    return _modifiers[name]


@cache
def _discover_own() -> None:
    package = import_module("prefopt.losses")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            import_module(f"prefopt.losses.{module.name}")


@cache
def _discover_plugins() -> None:
    for point in sorted(entry_points(group="prefopt.losses"), key=lambda p: (p.name, p.value)):
        _load_plugin(point)


def _load_plugin(point: EntryPoint) -> None:
    """Import one plug-in. One that fails is remembered and reported; it does not stop the others."""
    origin = point.dist.name if point.dist else point.value
    before = (dict(_specs), dict(_aliases))
    _importing.append(origin)
    try:
        point.load()
    except Exception as error:  # whatever a stranger's module raises
        _specs.clear()
        _specs.update(before[0])
        _aliases.clear()
        _aliases.update(before[1])
        _broken_plugins[point.name] = f"plug-in '{point.name}' ({point.value}) of {origin} failed to import: {error!r}"
    finally:
        _importing.pop()


def broken_plugins() -> Mapping[str, str]:
    """Entry-point name -> what went wrong, for plug-ins that failed to import."""
    _discover_own()
    _discover_plugins()
    return dict(_broken_plugins)


def loss_names() -> list[str]:
    """Names of every registered loss, ours and plug-ins', sorted."""
    _discover_own()
    _discover_plugins()
    return sorted(_specs)


def loss_spec(name: str) -> LossSpec:
    """The registered loss of that name or alias.

    Raises: `ConfigError` with a suggestion for an unknown name, with the candidates for an ambiguous abbreviation.
    """
    _discover_own()
    word = _aliases.get(name, name)
    if word not in _specs:  # plug-ins may import anything, so they are asked only when ours do not have the name
        _discover_plugins()
        word = _aliases.get(name, name)
    if word in _specs:
        return _specs[word]
    if name.lower() in AMBIGUOUS:
        raise ConfigError(f"loss '{name}' may mean {AMBIGUOUS[name.lower()]}. Use the full name.")
    known = [*loss_names(), *_aliases]
    failed = "".join(f" {text}." for text in _broken_plugins.values())
    raise ConfigError(f"unknown loss '{name}'.{did_you_mean(name, known)} Losses: {', '.join(loss_names())}.{failed}")
