"""Whether a metric that a recipe names is reported, and the reporters it names are installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from prefopt.config.sections import DataSection, EvaluationSection
from prefopt.errors import Problem, did_you_mean
from prefopt.losses import Objective
from prefopt.params import shown
from prefopt.scores import Need

_PAIRS = (
    "rewards/chosen",
    "rewards/rejected",
    "rewards/margins",
    "rewards/accuracies",
    "rewards/ties",
    "logps/chosen",
    "logps/rejected",
)
_MOVED = (
    "chosen_delta",
    "rejected_delta",
    "chosen_delta_per_token",
    "rejected_delta_per_token",
    "chosen_delta_mean_per_token",
    "rejected_delta_mean_per_token",
    "chosen_dropped",
    "both_dropped",
)

REPORTERS = {
    "azure_ml": ("azureml",),
    "clearml": ("clearml",),
    "codecarbon": ("codecarbon",),
    "comet_ml": ("comet_ml",),
    "dagshub": ("dagshub",),
    "dvclive": ("dvclive",),
    "flyte": ("flytekit",),
    "kubeflow": (),
    "mlflow": ("mlflow",),
    "neptune": ("neptune",),
    "swanlab": ("swanlab",),
    "tensorboard": ("tensorboard", "tensorboardX"),
    "trackio": ("trackio",),
    "wandb": ("wandb",),
}
"""What transformers reports to -> the modules of which one must be installed."""


def best_metric_is_reported(
    data: DataSection, objective: Objective, evaluation: EvaluationSection, training: dict[str, Any]
) -> Iterator[Problem]:
    best = training.get("save_strategy") == "best"
    name = training.get("metric_for_best_model")
    if not data.eval or not (best or training.get("load_best_model_at_end")) or (best and not name):
        return
    sets = tuple(data.eval)
    if not name:
        text = f"training.load_best_model_at_end: write metric_for_best_model, for instance eval_{sets[0]}_loss."
        yield Problem(text, ("training", "load_best_model_at_end"))
        return
    metrics = evaluation_metrics(objective, evaluation)
    wanted = name if name.startswith("eval_") else f"eval_{name}"
    known = [f"eval_{one}_{metric}" for one in sets for metric in metrics]
    own = tuple(f"eval_{one}_{loss.name}/" for one in sets for loss in objective.losses)
    if wanted in known or wanted.startswith(own):
        return
    bare = wanted.removeprefix("eval_")  # the beginning they share would make every name look close
    guess = f"{sets[0]}_{bare}" if bare in metrics else bare
    near = did_you_mean(guess, [one.removeprefix("eval_") for one in known]).replace(" '", " 'eval_")
    text = f"training.metric_for_best_model: no evaluation reports {shown(name)}.{near} Names are eval_SET_METRIC"
    yield Problem(
        f"{text}; sets: {', '.join(sets)}; metrics: {', '.join(metrics)}.", ("training", "metric_for_best_model")
    )


def evaluation_metrics(objective: Objective, evaluation: EvaluationSection) -> tuple[str, ...]:
    """What every evaluation reports of this objective; a loss may add `NAME/...` of its own."""
    parts = [f"loss/{loss.name}" for loss in objective.losses] if len(objective.losses) > 1 else []
    moved = [f"displacement/{name}" for name in _MOVED] if Need.REFERENCE in objective.needs else []
    answers = [] if evaluation.generate is None else ["answer_accuracy", "answer_missing"]
    return ("loss", *parts, *_PAIRS, *moved, *answers)


def reporters_are_installed(training: dict[str, Any]) -> Iterator[Problem]:
    value = training.get("report_to")
    for name in [value] if isinstance(value, str) else value or ():
        if name in ("none", "all"):
            continue
        text = ""
        if name not in REPORTERS:
            text = (
                f"unknown choice {shown(name)}.{did_you_mean(name, REPORTERS)} Choices: {', '.join(REPORTERS)}, none."
            )
        elif REPORTERS[name] and not any(find_spec(module) for module in REPORTERS[name]):
            packages = " or ".join(module.replace("_", "-") for module in REPORTERS[name])
            text = f"{name} needs the package {packages}, which is not installed. Install it, or write none."
        if text:
            yield Problem(f"training.report_to: {text}", ("training", "report_to"))


REPORT_RULES = (best_metric_is_reported, reporters_are_installed)
