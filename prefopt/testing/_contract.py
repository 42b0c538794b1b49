"""The properties that every loss has, each a function that asserts it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from prefopt.context import Draw, StepContext
from prefopt.errors import ConfigError
from prefopt.losses import Loss, get_loss
from prefopt.params import LossParams
from prefopt.scores import Need, Scores
from prefopt.testing._make import make_scores, padded, rows_of, value_and_gradient
from prefopt.testing._ranges import out_of_range
from prefopt.testing._ranks import same_state, simulate_ranks

EXTREME = 1e4
"""Nats: far beyond what training meets, and still a float32 with four digits behind the point."""


IN_TRAINING = StepContext(draw=Draw(seed=1), step=3, total_steps=10)
"""A step of training on one rank, for losses that look beyond their own prompt."""


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
        for context in _contexts(loss):
            scores = make_scores(loss, prompts=prompts, dtype=dtype)
            out, gradient = value_and_gradient(loss, scores, context)
            assert out.losses.shape == (prompts,), f"losses have shape {list(out.losses.shape)}, not [{prompts}]"
            assert out.losses.dtype == dtype, f"losses are {out.losses.dtype} for {dtype} scores"
            assert _finite(out.losses, gradient), "not finite"
            assert gradient.any(), "the gradient is zero"


def padding_changes_nothing(loss: Loss) -> None:
    """Neither more padding nor what it holds reaches losses or gradients."""
    for context in _contexts(loss):
        _padding_changes_nothing(loss, context)


def _padding_changes_nothing(loss: Loss, context: StepContext | None) -> None:
    scores = make_scores(loss)
    out, gradient = value_and_gradient(loss, scores, context)
    for filler in (-math.inf, math.nan, 7.0):
        wider = padded(scores, filler)
        again, wide = value_and_gradient(loss, wider, context)
        assert torch.allclose(again.losses, out.losses, rtol=1e-12, atol=0), f"padding of {filler} changes the loss"
        tokens = scores.policy.shape[-1]
        assert torch.allclose(wide[..., :tokens], gradient, rtol=1e-12, atol=0), (
            f"padding of {filler} changes the gradient"
        )
        assert not wide[~wider.mask].any(), f"padding of {filler} receives a gradient"
        for name, value in {"rewards": out.rewards, **out.metrics}.items():
            other = again.rewards if name == "rewards" else again.metrics[name]
            assert torch.allclose(other, value, rtol=1e-12, atol=0), f"padding of {filler} changes {name}"


def each_prompt_alone(loss: Loss) -> None:
    """Called plainly, and in evaluation, a prompt's loss is the same whoever stands beside it."""
    scores = make_scores(loss)
    state = loss(scores, IN_TRAINING).state
    for context in (None, dataclasses.replace(IN_TRAINING, training=False, state=state)):
        together = loss(scores, context)
        for row in range(len(together.losses)):
            alone = loss(rows_of(scores, torch.tensor([row])), context)
            for what, one, all_ in (
                ("loss", alone.losses, together.losses),
                ("reward", alone.rewards, together.rewards),
            ):
                assert torch.allclose(one[0], all_[row], rtol=1e-10), (
                    f"the {what} of prompt {row} depends on its neighbours"
                )


def ranks_add_up(loss: Loss) -> None:
    """On several ranks, of unequal size or empty, a training step has the value, gradient and state of one."""
    scores = make_scores(loss, prompts=7)
    whole, gradient = value_and_gradient(loss, scores, IN_TRAINING)
    for counts in ((3, 4), (2, 0, 5)):
        shares = simulate_ranks(loss, scores, counts, IN_TRAINING)
        value = torch.stack([share.losses.sum() for share, _ in shares]).sum()
        assert torch.allclose(value, whole.losses.sum(), rtol=1e-9), f"the loss of ranks {counts} is not that of one"
        slopes = torch.cat([slope for _, slope in shares])
        assert torch.allclose(slopes, gradient, rtol=1e-8, atol=1e-12), f"ranks {counts} have another gradient than one"
        for share, _ in shares:
            assert same_state(share.state, whole.state), f"the state on ranks {counts} is not that of one"


def evaluation_moves_nothing(loss: Loss) -> None:
    """In evaluation no state changes."""
    scores = make_scores(loss)
    state = loss(scores, IN_TRAINING).state
    out = loss(scores, dataclasses.replace(IN_TRAINING, training=False, state=state))
    assert out.state is None or same_state(out.state, state), "evaluation changed the state"


def reports_carry_no_gradient(loss: Loss) -> None:
    """Rewards `[B, R]`, metrics `[B]` and the state are detached."""
    scores = make_scores(loss)
    for context in _contexts(loss):
        out = loss(dataclasses.replace(scores, policy=scores.policy.clone().requires_grad_()), context)
        assert out.rewards.shape == scores.policy.shape[:2], f"rewards have shape {list(out.rewards.shape)}"
        state = {} if out.state is None else {f"state {name}": value for name, value in vars(out.state).items()}
        for name, value in {"rewards": out.rewards, **out.metrics, **out.parts, **state}.items():
            if isinstance(value, Tensor):
                assert not value.requires_grad, f"{name} carries a gradient"
                assert _finite(value), f"{name} is not finite"
        for name, value in out.metrics.items():
            assert value.shape == out.losses.shape, f"metric {name} has shape {list(value.shape)}"


def finite_at_extremes(loss: Loss) -> None:
    """Finite values and gradients at +-10,000 nats, in float32; bfloat16 log-probabilities are computed in float32."""
    for sign in (1.0, -1.0):
        scores = make_scores(loss, dtype=torch.float32)
        policy = scores.policy + sign * EXTREME * torch.tensor([1.0, -1.0] * 2)[: scores.policy.shape[1]].view(1, -1, 1)
        for context in _contexts(loss):
            out, gradient = value_and_gradient(loss, dataclasses.replace(scores, policy=policy.clamp(max=0)), context)
            assert _finite(out.losses, gradient), f"not finite at {sign * EXTREME:g} nats"
    half = make_scores(loss, dtype=torch.float32)
    out = loss(dataclasses.replace(half, policy=half.policy.bfloat16()))
    assert out.losses.dtype == torch.float32, f"bfloat16 log-probabilities give {out.losses.dtype} losses"


def finite_without_tokens(loss: Loss) -> None:
    """Finite values and gradients where a response has no scored token, where none has, and where all are equal."""
    scores = make_scores(loss, dtype=torch.float32)
    mask = scores.mask.clone()
    mask[0, 0], mask[1, -1], mask[2] = False, False, False
    same: dict[str, Any] = {
        name: value[:, :1].expand_as(value).clone()
        for name, value in vars(scores).items()
        if isinstance(value, Tensor) and value.dim() > 1
    }
    for case in (dataclasses.replace(scores, mask=mask), dataclasses.replace(scores, **same)):
        for context in _contexts(loss):
            out, gradient = value_and_gradient(loss, case, context)
            assert _finite(out.losses, out.rewards, gradient), "not finite"


def sound_at_the_start(loss: Loss) -> None:
    """Finite gradient at policy = reference, where every run starts."""
    scores = make_scores(loss)
    if scores.reference is not None:
        for context in _contexts(loss):
            start = dataclasses.replace(scores, policy=scores.reference)
            out, gradient = value_and_gradient(loss, start, context)
            assert _finite(out.losses, out.rewards, gradient), "not finite at policy = reference"


def pulls_the_right_way(loss: Loss) -> None:
    """Near the start the chosen response is pulled up and no rejected one is."""
    _, gradient = value_and_gradient(loss, make_scores(loss))
    assert (gradient[:, 0] <= 0).all(), "the chosen response is pushed down"
    assert gradient[:, 0].any(), "the chosen response gets no gradient"
    if loss.responses != "single":
        assert (gradient[:, 1:] >= 0).all(), "a rejected response is pulled up"


_PER_PROMPT = {Need.REFERENCE, Need.EXTERNAL, Need.DEVIATION, Need.LABELS, Need.MISMATCHED}
_PER_TOKEN_NEEDS = frozenset(Need) - _PER_PROMPT


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
    """Changing any one of the hyperparameters changes losses or rewards."""
    for name, value in loss.params.written().items():
        if f"every_option_acts:{name}" in loss.spec.excused:
            continue
        for other in _others(loss.spec.params, name, value):
            rest = {key: kept for key, kept in loss.params.model_dump(exclude_unset=True).items() if key != name}
            try:
                changed = Loss(loss.spec, loss.spec.params.build({**rest, name: other}))
            except ConfigError:
                continue
            contexts = {*_contexts(loss), *_contexts(changed)}
            assert any(_differ(loss, changed, context) for context in contexts), f"{name} = {other} changes nothing"


def _others(params: type[LossParams], name: str, value: Any) -> list[Any]:
    """Other values of an option: numbers around it, the other choices, the other truth value."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        found = [type(value)(other) for other in (value * 1.5, value + 0.25, value * 0.5)]
        return [other for other in found if other != value]
    choices = [choice for choice in get_args(params.model_fields[name].annotation) if isinstance(choice, str)]
    return [choice for choice in choices if choice != value]


def _differ(one: Loss, other: Loss, context: StepContext | None) -> bool:
    """Whether two losses give other numbers in the second of two steps."""

    wider = other if other.needs >= one.needs else one  # scores with all that either reads

    def numbers(loss: Loss) -> Tensor:
        found = []
        for scale in (1.0, 30.0):  # a floor or a cap acts only far from the start
            scores = make_scores(wider, scale=scale, seed=1)
            first = loss(scores, context)
            again = loss(scores, context and dataclasses.replace(context, state=first.state))
            found += [first.losses, again.losses, first.rewards.flatten()]
        return torch.cat(found)

    return not torch.equal(numbers(one), numbers(other))


def deterministic(loss: Loss) -> None:
    """Two calls give the same numbers and leave the global random state alone."""
    scores = make_scores(loss)
    before = torch.random.get_rng_state()
    for context in _contexts(loss):
        first, second = loss(scores, context).losses, loss(scores, context).losses
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
        ranks_add_up,
        evaluation_moves_nothing,
        reports_carry_no_gradient,
        finite_at_extremes,
        finite_without_tokens,
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


def _contexts(loss: Loss) -> tuple[StepContext | None, ...]:
    """Ways in which a loss is called: plainly, and in training where it looks beyond its own prompt."""
    return (None, IN_TRAINING) if loss.coupled else (None,)


def _finite(*values: Tensor) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in values)
