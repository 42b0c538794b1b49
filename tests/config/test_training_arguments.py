"""The list of training arguments is that of the installed transformers."""

from __future__ import annotations

import json

import pytest

from prefopt.config.generate import training_arguments
from prefopt.config.training import LIST_FILE, NAMES, OWNED, training_problems, unused_arguments


@pytest.fixture(scope="module")
def installed() -> dict[str, object]:
    return json.loads(json.dumps(training_arguments()))  # type: ignore[no-any-return]


def test_the_list_is_current(installed: dict[str, object]) -> None:
    assert json.loads(LIST_FILE.read_text(encoding="utf-8")) == installed, "run `make regenerate`"


def test_every_default_is_accepted_and_kept() -> None:
    """A resolved recipe, or a person who writes a default out, is not refused."""
    defaults = {name: entry["default"] for name, entry in NAMES.items() if name not in OWNED}
    good, found = training_problems(defaults)
    assert not found
    assert good == defaults


def test_owned_arguments_exist() -> None:
    assert set(OWNED) <= set(NAMES)


def test_transformers_takes_what_passes(installed: dict[str, object]) -> None:
    from transformers import TrainingArguments

    values = {
        "learning_rate": 1e-6,
        "max_steps": 1e1,
        "warmup_steps": 0.1,
        "lr_scheduler_type": "cosine",
        "report_to": ["none"],
    }
    good, found = training_problems(values)
    assert not found
    arguments = TrainingArguments(output_dir="unused", use_cpu=True, **good)
    assert (arguments.max_steps, type(arguments.max_steps)) == (10, int)


def test_what_is_unused_has_a_reason() -> None:
    assert unused_arguments({"max_steps": 5, "num_train_epochs": 2}) == {"num_train_epochs": "training.max_steps is 5"}
    assert unused_arguments({"save_steps": 5, "logging_steps": 5, "save_total_limit": 2}) == {}
    assert set(unused_arguments({"save_strategy": "no", "save_steps": 5, "save_total_limit": 2})) == {
        "save_steps",
        "save_total_limit",
    }
