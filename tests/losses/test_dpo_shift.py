from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from prefopt import ConfigError, Scores, get_loss
from prefopt.context import StepContext
from prefopt.testing import PROPERTIES, make_scores
from tests.losses.drawn import from_ratios, gradient, on_random_scores, same_values_and_gradients, value_of
from tests.losses.vectors import REGISTRY, cases, check_case, check_registry, leaves

RENAMED = {"lambda": "lam"}
INPUTS_OF_A_CALL = ("step", "total_steps")


def options(params: dict[str, Any]) -> dict[str, Any]:
    return {RENAMED.get(name, name): value for name, value in params.items() if name not in INPUTS_OF_A_CALL}


def context_of(params: dict[str, Any]) -> StepContext | None:
    return StepContext(**{name: params[name] for name in INPUTS_OF_A_CALL}) if "step" in params else None


@pytest.mark.parametrize("case", cases("dpo_shift"), ids=lambda case: case["id"])
def test_worked_values(case: dict[str, Any]) -> None:
    loss, context = get_loss("dpo_shift", **options(case["params"])), context_of(case["params"])
    check_case(loss, case, context=context)
    f = loss(leaves(case["inputs"], torch.float64)[1], context).metrics["dpo_shift/f"]
    assert f.tolist() == pytest.approx([case["expected_aux"]["lambda"]] * len(f), rel=1e-9)


def test_shared_batch_values_and_derivatives() -> None:
    case = REGISTRY["registry/dpo_shift"]
    check_registry(get_loss("dpo_shift", beta=case["inputs"]["beta"], lam=case["inputs"]["f_lambda"]), case)


@on_random_scores("dpo_shift")
def test_equals_dpo_when_f_is_one(scores: Scores) -> None:
    same_values_and_gradients(value_of("dpo_shift", beta=0.2, lam=1.0), value_of("dpo", beta=0.2), scores)


@pytest.mark.parametrize(
    ("schedule", "start", "half", "end"),
    [
        ("linear_increase", 0.6, 0.8, 1.0),
        ("linear_decrease", 1.0, 0.8, 0.6),
        ("cosine_increase", 0.6, 0.8, 1.0),
        ("cosine_decrease", 1.0, 0.8, 0.6),
    ],
)
def test_a_schedule_runs_from_one_end_to_the_other_and_no_further(
    schedule: str, start: float, half: float, end: float
) -> None:
    loss = get_loss("dpo_shift", schedule=schedule, lambda_min=0.6, lambda_max=1.0)
    scores = make_scores(loss)

    def f(step: int) -> float:
        return float(loss(scores, StepContext(step=step, total_steps=40)).metrics["dpo_shift/f"][0])

    assert [f(0), f(20), f(40), f(50)] == pytest.approx([start, half, end, end])
    assert float(loss(scores).metrics["dpo_shift/f"][0]) == pytest.approx(start), "without context: the start"
    quarter = 0.6 + 0.4 * (0.25 if schedule.startswith("linear") else (1 - math.cos(math.pi / 4)) / 2)
    assert f(10 if schedule.endswith("increase") else 30) == pytest.approx(quarter)


def test_evaluation_takes_the_current_f_and_reports_the_unshifted_loss_beside() -> None:
    loss, plain = get_loss("dpo_shift", schedule="linear_increase", lambda_min=0.5), get_loss("dpo", beta=0.01)
    scores = make_scores(loss)
    out = loss(scores, StepContext(step=10, total_steps=20, training=False))
    torch.testing.assert_close(out.losses, get_loss("dpo_shift", lam=0.75)(scores).losses)
    torch.testing.assert_close(out.metrics["dpo_shift/dpo_loss"], plain(scores).losses)


def test_the_rejected_push_is_f_times_the_chosen_pull() -> None:
    loss, scores = get_loss("dpo_shift", lam=0.7), make_scores(get_loss("dpo_shift"), tokens=1)
    found = gradient(loss, scores)
    torch.testing.assert_close(found[:, 1], -0.7 * found[:, 0])


def test_identical_responses_are_at_log_2_only_where_they_stand_at_the_reference() -> None:
    loss = get_loss("dpo_shift", beta=0.1, lam=0.5)
    below, at = loss(from_ratios([-1.5, 0.0], [-1.5, 0.0])).losses.tolist()
    assert below == pytest.approx(math.log1p(math.exp(0.1 * 0.5 * 1.5)))
    assert at == pytest.approx(math.log(2))


@pytest.mark.parametrize("schedule", ["linear_increase", "cosine_decrease"])
@pytest.mark.parametrize("title", sorted(set(PROPERTIES) - {"every_option_acts"}))
def test_schedules_keep_the_contract(schedule: str, title: str) -> None:
    """Called plainly a schedule stands at its start, where the other end of it cannot act."""
    PROPERTIES[title](get_loss("dpo_shift", schedule=schedule, lambda_min=0.8, lambda_max=0.95))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"lam": 1.05}, "lam must be at most 1; got 1.05"),
        ({"lam": 0.0}, "lam must be greater than 0; got 0.0"),
        ({"lam": -0.5}, "lam must be greater than 0; got -0.5"),
        ({"schedule": "linear_increase", "lambda_max": 1.05}, "lambda_max must be at most 1; got 1.05"),
        ({"schedule": "linear_increase", "lambda_min": 0.0}, "lambda_min must be greater than 0; got 0"),
        (
            {"schedule": "linear_decrease", "lambda_min": 0.9, "lambda_max": 0.8},
            "lambda_min must be at most lambda_max; got 0.9 and 0.8. The name of the schedule says which way",
        ),
        ({"schedule": "linear_increase", "lam": 0.95}, "lam has no effect here: a schedule runs between"),
        ({"lambda_min": 0.9}, "lambda_min has no effect here: `schedule: fixed` reads lam"),
        ({"lambda_max": 0.9}, "lambda_max has no effect here: `schedule: fixed` reads lam"),
        ({"schedule": "increase_linear"}, "schedule must be one of 'fixed', 'linear_increase'"),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match="loss 'dpo_shift': ") as refusal:
        get_loss("dpo_shift", **wrong)
    assert told in str(refusal.value)
