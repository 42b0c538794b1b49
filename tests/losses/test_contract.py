"""Every registered loss keeps the contract, property by property."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch.nn.functional as F

from prefopt import DataError, LossOutput, Need, Scores, get_loss, loss_names
from prefopt.losses import Loss
from prefopt.testing import PROPERTIES


@pytest.mark.parametrize("name", loss_names())
@pytest.mark.parametrize("title", PROPERTIES)
def test_contract(name: str, title: str) -> None:
    loss = get_loss(name)
    if title in loss.spec.excused:
        pytest.skip(loss.spec.excused[title])
    PROPERTIES[title](loss)


def variants() -> list[tuple[str, dict[str, Any]]]:
    """Each loss with each further choice of an option that has choices, where its other options allow it."""
    found = []
    for name in loss_names():
        loss = get_loss(name)
        for option, field in loss.spec.params.model_fields.items():
            for choice in get_args(field.annotation) or ((True, False) if field.annotation is bool else ()):
                if isinstance(choice, str | bool) and choice != field.default and option not in loss.params.unused():
                    found.append((name, {option: choice}))
    return found


NOT_IN_VARIANTS = {
    "pulls_the_right_way",
    "every_option_acts",
    "declares_what_it_reads",
    "ranges_are_enforced",
    "documented",
}
LOCAL_BY_DESIGN = ("dr_dpo", {"scope": "local"})


@pytest.mark.parametrize(("name", "options"), variants(), ids=str)
def test_numerics_of_the_contract_in_every_variant(name: str, options: dict[str, Any]) -> None:
    loss = get_loss(name, **options)
    for title in PROPERTIES.keys() - NOT_IN_VARIANTS - loss.spec.excused.keys():
        if title == "ranks_add_up" and (name, options) == LOCAL_BY_DESIGN:
            continue
        if title == "each_prompt_alone" and options.get("eval_beta") == "dynamic":
            continue  # the evaluation batch matters, as the option says
        PROPERTIES[title](loss)


def registered(function: Any, *, needs: Any = frozenset({Need.REFERENCE})) -> Loss:
    function.__doc__ = "Broken on purpose. Shapes: [B]. Source: none."
    spec = replace(get_loss("dpo").spec, function=function, needs=needs)
    return Loss(spec, spec.params())


def plain(scores: Scores, params: Any) -> LossOutput:
    chosen, rejected = scores.logratios.unbind(-1)
    return LossOutput(-F.logsigmoid(params.beta * (chosen - rejected)), (params.beta * scores.logratios).detach())


def flipped(scores: Scores, params: Any) -> LossOutput:
    chosen, rejected = scores.logratios.unbind(-1)
    return LossOutput(-F.logsigmoid(params.beta * (rejected - chosen)), scores.logratios.detach())


def sharp_at_the_start(scores: Scores, params: Any) -> LossOutput:
    chosen, rejected = scores.logratios.unbind(-1)
    return LossOutput(-((chosen - rejected) ** 2).sqrt(), scores.logratios.detach())


def rewards_from_padding(scores: Scores, params: Any) -> LossOutput:
    return LossOutput(plain(scores, params).losses, scores.policy.detach().sum(-1))


def batch_mean_reward(scores: Scores, params: Any) -> LossOutput:
    out = plain(scores, params)
    return LossOutput(out.losses, out.rewards - out.rewards.mean())


def no_reference(scores: Scores, params: Any) -> LossOutput:
    chosen, rejected = scores.sums.unbind(-1)
    return LossOutput(-F.logsigmoid(params.beta * (chosen - rejected)), (params.beta * scores.sums).detach())


def fixed_beta(scores: Scores, params: Any) -> LossOutput:
    chosen, rejected = scores.logratios.unbind(-1)
    return LossOutput(-F.logsigmoid(0.1 * (chosen - rejected)), scores.logratios.detach())


def undeclared_lengths(scores: Scores, params: Any) -> LossOutput:
    chosen, rejected = (scores.logratios / scores.lengths).unbind(-1)
    return LossOutput(-F.logsigmoid(params.beta * (chosen - rejected)), (params.beta * scores.logratios).detach())


def scalar(scores: Scores, params: Any) -> LossOutput:
    return LossOutput(plain(scores, params).losses.mean(), plain(scores, params).rewards)


BREAKS = {
    "pulls_the_right_way": flipped,
    "sound_at_the_start": sharp_at_the_start,
    "padding_changes_nothing": rewards_from_padding,
    "each_prompt_alone": batch_mean_reward,
    "declares_what_it_reads": no_reference,
    "every_option_acts": fixed_beta,
    "one_finite_loss_per_prompt": scalar,
}


@pytest.mark.parametrize("title", BREAKS)
def test_the_contract_catches_a_broken_loss(title: str) -> None:
    with pytest.raises(AssertionError):
        PROPERTIES[title](registered(BREAKS[title]))


def test_the_contract_catches_needs_that_were_not_declared() -> None:
    with pytest.raises(DataError, match="made from sums"):
        PROPERTIES["declares_what_it_reads"](registered(undeclared_lengths))
    with pytest.raises(DataError, match=r"declares Need\.REFERENCE"):
        PROPERTIES["one_finite_loss_per_prompt"](registered(plain, needs=frozenset()))
