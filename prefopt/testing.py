"""The contract of every loss, ours and plug-ins'.

    from prefopt.testing import check_loss
    check_loss("my_loss")

Each property is a function of its own, so a test can run them apart: `PROPERTIES` lists them by name. A loss is excused
from a property by naming it, with the reason, in `register_loss(..., excused={...})`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from prefopt.errors import ConfigError
from prefopt.losses import Loss, get_loss, loss_spec
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

EXTREME = 1e4
"""Nats: far beyond what training meets, and still a float32 with four digits behind the point."""


def make_scores(
    loss: Loss,
    *,
    prompts: int = 5,
    tokens: int = 7,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    scale: float = 1.0,
) -> Scores:
    """Random scores with everything the loss reads: unequal lengths from one token up, policy near the reference.

    Shapes: `[prompts, R, tokens]` with R = 1, 2 or 4 for a loss on single responses, pairs, or many.
    """
    generator = torch.Generator().manual_seed(seed)
    responses = {"single": 1, "pair": 2, "many": 4}[loss.responses]
    shape = (prompts, responses, tokens)

    def uniform(*size: int) -> Tensor:
        return torch.rand(*size, generator=generator, dtype=torch.float64)

    lengths = torch.randint(1, tokens + 1, shape[:2], generator=generator)
    reference = -2 * uniform(*shape) * scale
    policy = reference + (uniform(*shape) - 0.5) * scale
    columns: dict[Need, Tensor] = {
        Need.STEPS: torch.arange(tokens).div(2, rounding_mode="floor").expand(shape).clone(),
        Need.STEP_REWARDS: uniform(*shape[:2], (tokens + 1) // 2),
        Need.WEIGHTS: uniform(*shape),
        Need.TOKEN_SCORES: uniform(*shape),
        Need.DIFF: uniform(*shape) < 0.5,
        Need.KL: uniform(*shape),
        Need.SUM_SQUARES: 0.1 + 0.9 * uniform(*shape),
        Need.EXTERNAL: uniform(*shape[:2]),
        Need.DEVIATION: uniform(*shape[:2]),
        Need.LABELS: uniform(prompts) < 0.5,
        Need.REFERENCE: reference,
    }
    given = {need.value: value for need, value in columns.items() if need in loss.needs}
    floats: dict[str, Any] = {
        name: value.to(dtype) if value.is_floating_point() else value for name, value in given.items()
    }
    mask = torch.arange(tokens) < lengths.unsqueeze(-1)
    return Scores(policy=policy.to(dtype), mask=mask, **floats)


def check_loss(name: str, **options: Any) -> None:
    """Assert that the registered loss `name`, with these hyperparameters, keeps the whole contract.

    Raises: `AssertionError` that names the property.
    """
    loss = get_loss(name, **options)
    for title, prove in PROPERTIES.items():
        if title not in loss.spec.excused:
            try:
                prove(loss)
            except Exception as error:
                raise AssertionError(f"loss '{name}' breaks the contract, {title}: {error}") from error


def one_finite_loss_per_prompt(loss: Loss) -> None:
    """Losses `[B]`, finite with a finite gradient, in float64 and float32, for one prompt too."""
    for prompts, dtype in ((5, torch.float64), (5, torch.float32), (1, torch.float64)):
        scores = make_scores(loss, prompts=prompts, dtype=dtype)
        out, gradient = _value_and_gradient(loss, scores)
        assert out.losses.shape == (prompts,), f"losses have shape {list(out.losses.shape)}, not [{prompts}]"
        assert out.losses.dtype == dtype, f"losses are {out.losses.dtype} for {dtype} scores"
        assert _finite(out.losses, gradient), "not finite"
        assert gradient.any(), "the gradient is zero"


def padding_changes_nothing(loss: Loss) -> None:
    """Neither more padding nor what it holds reaches losses or gradients."""
    scores = make_scores(loss)
    out, gradient = _value_and_gradient(loss, scores)
    for filler in (-math.inf, math.nan, 7.0):
        padded = _padded(scores, filler)
        again, wide = _value_and_gradient(loss, padded)
        assert torch.allclose(again.losses, out.losses, rtol=1e-12, atol=0), f"padding of {filler} changes the loss"
        tokens = scores.policy.shape[-1]
        assert torch.allclose(wide[..., :tokens], gradient, rtol=1e-12, atol=0), (
            f"padding of {filler} changes the gradient"
        )
        assert not wide[~padded.mask].any(), f"padding of {filler} receives a gradient"
        for name, value in {"rewards": out.rewards, **out.metrics}.items():
            other = again.rewards if name == "rewards" else again.metrics[name]
            assert torch.allclose(other, value, rtol=1e-12, atol=0), f"padding of {filler} changes {name}"


def each_prompt_alone(loss: Loss) -> None:
    """Called plainly, a prompt's loss is the same whoever stands beside it."""
    scores = make_scores(loss)
    together = loss(scores)
    for row in range(len(together.losses)):
        alone = loss(_rows(scores, torch.tensor([row])))
        for what, one, all_ in (("loss", alone.losses, together.losses), ("reward", alone.rewards, together.rewards)):
            assert torch.allclose(one[0], all_[row], rtol=1e-10), (
                f"the {what} of prompt {row} depends on its neighbours"
            )


def reports_carry_no_gradient(loss: Loss) -> None:
    """Rewards `[B, R]` and metrics `[B]` are detached."""
    scores = dataclasses.replace(make_scores(loss))
    out = loss(dataclasses.replace(scores, policy=scores.policy.clone().requires_grad_()))
    assert out.rewards.shape == scores.policy.shape[:2], f"rewards have shape {list(out.rewards.shape)}"
    for name, value in {"rewards": out.rewards, **out.metrics, **out.parts}.items():
        assert not value.requires_grad, f"{name} carries a gradient"
        assert _finite(value), f"{name} is not finite"
    for name, value in out.metrics.items():
        assert value.shape == out.losses.shape, f"metric {name} has shape {list(value.shape)}"


def finite_at_extremes(loss: Loss) -> None:
    """Finite values and gradients at +-10,000 nats, in float32; bfloat16 log-probabilities are computed in float32."""
    for sign in (1.0, -1.0):
        scores = make_scores(loss, dtype=torch.float32)
        policy = scores.policy + sign * EXTREME * torch.tensor([1.0, -1.0] * 2)[: scores.policy.shape[1]].view(1, -1, 1)
        out, gradient = _value_and_gradient(loss, dataclasses.replace(scores, policy=policy.clamp(max=0)))
        assert _finite(out.losses, gradient), f"not finite at {sign * EXTREME:g} nats"
    half = make_scores(loss, dtype=torch.float32)
    out = loss(dataclasses.replace(half, policy=half.policy.bfloat16()))
    assert out.losses.dtype == torch.float32, f"bfloat16 log-probabilities give {out.losses.dtype} losses"


def sound_at_the_start(loss: Loss) -> None:
    """Finite gradient at policy = reference, where every run starts."""
    scores = make_scores(loss)
    if scores.reference is not None:
        out, gradient = _value_and_gradient(loss, dataclasses.replace(scores, policy=scores.reference))
        assert _finite(out.losses, out.rewards, gradient), "not finite at policy = reference"


def pulls_the_right_way(loss: Loss) -> None:
    """Near the start the chosen response is pulled up and no rejected one is."""
    _, gradient = _value_and_gradient(loss, make_scores(loss))
    assert (gradient[:, 0] <= 0).all(), "the chosen response is pushed down"
    assert gradient[:, 0].any(), "the chosen response gets no gradient"
    if loss.responses != "single":
        assert (gradient[:, 1:] >= 0).all(), "a rejected response is pulled up"


_PER_TOKEN_NEEDS = frozenset(Need) - {Need.REFERENCE, Need.EXTERNAL, Need.DEVIATION, Need.LABELS}


def declares_what_it_reads(loss: Loss) -> None:
    """A declared reference is read; a loss that declares nothing per token or length reads sums only."""
    scores = make_scores(loss)
    losses = loss(scores).losses
    if scores.reference is not None:
        other = dataclasses.replace(scores, reference=scores.reference * 1.5)
        assert not torch.allclose(loss(other).losses, losses), (
            "Need.REFERENCE is declared and the reference is not read"
        )
    if not loss.needs & _PER_TOKEN_NEEDS:
        extras = {need.value: getattr(scores, need.value) for need in loss.needs - {Need.REFERENCE}}
        reference = None if scores.reference is None else scores.reference_sums
        sums = Scores.from_sums(scores.sums, reference, **extras)
        assert torch.allclose(loss(sums).losses, losses, rtol=1e-9), "more than sums is read, and not declared"


def every_option_acts(loss: Loss) -> None:
    """Changing a number among the hyperparameters changes losses or rewards."""
    for name, value in loss.params.written().items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for other in (value * 1.5, value + 0.25, value * 0.5):
            try:
                params = loss.spec.params.build({**loss.params.written(), name: type(value)(other)})
            except ConfigError:
                continue
            scores = make_scores(loss)
            before, after = loss(scores), Loss(loss.spec, params)(scores)
            same = torch.equal(before.losses, after.losses) and torch.equal(before.rewards, after.rewards)
            if other != value:
                assert not same, f"{name} changes nothing"


def deterministic(loss: Loss) -> None:
    """Two calls give the same numbers and leave the global random state alone."""
    scores = make_scores(loss)
    before = torch.random.get_rng_state()
    first, second = loss(scores).losses, loss(scores).losses
    assert torch.equal(first, second), "two calls differ"
    assert torch.equal(before, torch.random.get_rng_state()), "the global random state was used"


def ranges_are_enforced(loss: Loss) -> None:
    """A value just outside a declared range is refused."""
    for name, values in out_of_range(loss.spec.params).items():
        for value in values:
            try:
                loss.spec.params.build({name: value})
            except ConfigError:
                continue
            raise AssertionError(f"{name} = {value} is outside its declared range and was accepted")


def documented(loss: Loss) -> None:
    """The docstring has shapes and a source, and every parameter a description."""
    text = loss.spec.function.__doc__ or ""
    for word in ("Shapes:", "Source:"):
        assert word in text, f"the docstring has no '{word}'"
    for name, field in loss.spec.params.model_fields.items():
        assert field.description, f"parameter {name} has no description"
    assert loss.spec.source, "no source"


PROPERTIES: Mapping[str, Callable[[Loss], None]] = {
    prove.__name__: prove
    for prove in (
        one_finite_loss_per_prompt,
        padding_changes_nothing,
        each_prompt_alone,
        reports_carry_no_gradient,
        finite_at_extremes,
        sound_at_the_start,
        pulls_the_right_way,
        declares_what_it_reads,
        every_option_acts,
        deterministic,
        ranges_are_enforced,
        documented,
    )
}
"""Name -> what asserts it, for one loss."""


def out_of_range(params: type[LossParams]) -> dict[str, list[float]]:
    """For each parameter with a declared bound, values just outside of it."""
    found: dict[str, list[float]] = {}
    for name, field in params.model_fields.items():
        for bound in field.metadata:
            for kind, value in vars(bound).items() if hasattr(bound, "__dict__") else _slots(bound):
                step = {"gt": 0.0, "ge": -1e-6, "lt": 0.0, "le": 1e-6}.get(kind)
                if step is not None:
                    found.setdefault(name, []).append(float(value) + step)
    return found


def _slots(bound: Any) -> list[tuple[str, Any]]:
    return [(name, getattr(bound, name)) for name in ("gt", "ge", "lt", "le") if hasattr(bound, name)]


def _finite(*values: Tensor) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in values)


def _value_and_gradient(loss: Loss, scores: Scores) -> tuple[LossOutput, Tensor]:
    policy = scores.policy.clone().requires_grad_()
    out = loss(dataclasses.replace(scores, policy=policy))
    (gradient,) = torch.autograd.grad(out.losses.sum(), policy)
    return out, gradient


_PER_TOKEN = ("policy", "reference", "weights", "token_scores", "kl", "sum_squares", "steps", "diff", "mask")


def _padded(scores: Scores, filler: float, *, by: int = 3) -> Scores:
    """The same scores with `by` more masked positions, all masked ones holding `filler`."""
    changes: dict[str, Any] = {}
    mask = torch.nn.functional.pad(scores.mask, (0, by), value=False)
    for name in _PER_TOKEN:
        value = getattr(scores, name)
        if value is None:
            continue
        if value.is_floating_point():
            changes[name] = torch.nn.functional.pad(value, (0, by)).masked_fill(~mask, filler)
        else:
            changes[name] = torch.nn.functional.pad(value, (0, by), value=-1 if name == "steps" else 0)
    return dataclasses.replace(scores, **changes)


def _rows(scores: Scores, rows: Tensor) -> Scores:
    given = {f.name: getattr(scores, f.name) for f in dataclasses.fields(scores)}
    picked: dict[str, Any] = {name: value[rows] for name, value in given.items() if isinstance(value, Tensor)}
    return dataclasses.replace(scores, **picked)


__all__ = ["PROPERTIES", "check_loss", "loss_spec", "make_scores", "out_of_range"]
