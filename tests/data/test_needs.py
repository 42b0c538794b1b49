"""A recipe whose data lack what its loss reads is refused before anything is loaded, and told what to give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefopt import ConfigError, load_recipe
from prefopt.config import Recipe

PAIR = {"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5"}
GROUP = {"prompt": "2 + 2 =", "responses": [" 4", " 5"], "rewards": [1, 0]}
Load = Callable[..., Recipe]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.chdir(tmp_path)

    def with_records(loss: str, record: dict[str, Any]) -> Recipe:
        Path("data.jsonl").write_text("".join(json.dumps({**record, "id": str(n)}) + "\n" for n in range(3)))
        text = f"model: {{name_or_path: no/such-model}}\ndata: {{train: data.jsonl}}\nloss: {loss}\n"
        Path("recipe.yaml").write_text(text + "training: {output_dir: run}\n")
        return load_recipe(Path("recipe.yaml"))

    return with_records


LACKING = {
    "{name: step_dpo, scope: first_error}": (
        "loss 'step_dpo' needs step labels, but data.jsonl has none (columns chosen_steps and rejected_steps, or "
        "responses_steps)."
    ),
    "{name: full_step_dpo}": (
        "loss 'full_step_dpo' needs step labels, but data.jsonl has none (columns chosen_steps and rejected_steps, or "
        "responses_steps)."
    ),
    "{name: token_weighted_dpo}": (
        "loss 'token_weighted_dpo' needs token weights, but data.jsonl has none (columns chosen_weights, or "
        "rejected_weights, or responses_weights)."
    ),
    "{name: cdpo}": (
        "loss 'cdpo' needs token scores, but data.jsonl has none (columns rejected_token_scores, or "
        "responses_token_scores)."
    ),
    "{name: ddpo}": (
        "loss 'ddpo' needs deviation weights, but data.jsonl has none (columns chosen_deviation, or "
        "responses_deviation)."
    ),
    "{name: d2o}": (
        "loss 'd2o' needs scores of a reward model, but data.jsonl has none (columns score_chosen and score_rejected, "
        "or responses and rewards)."
    ),
}


@pytest.mark.parametrize("loss", LACKING)
def test_what_is_lacking_is_told_with_the_columns_that_give_it(load: Load, loss: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(loss, PAIR)
    assert LACKING[loss] in str(refused.value)


STEPS = {"chosen_steps": [[0, 2]], "rejected_steps": [[0, 2]]}


def test_steps_alone_are_no_step_rewards(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"needs step rewards.*or first_error_step"):
        load("{name: full_step_dpo}", {**PAIR, **STEPS})


@pytest.mark.parametrize(
    ("loss", "record"),
    [
        ("{name: step_dpo}", PAIR),
        ("{name: rise}", PAIR),
        ("{name: bmc}", PAIR),
        ("{name: step_dpo, scope: first_error}", {**PAIR, **STEPS, "first_error_step": 1}),
        ("{name: full_step_dpo}", {**PAIR, **STEPS, "chosen_step_rewards": [1], "rejected_step_rewards": [0]}),
        ("{name: token_weighted_dpo}", {**PAIR, "rejected_weights": [[0, 2, 2.0]]}),
        ("{name: cdpo}", {**PAIR, "rejected_token_scores": [0.5]}),
        ("{name: ddpo}", {**PAIR, "chosen_deviation": 1.0}),
        ("{name: d2o}", GROUP),
        ("{name: mc_po}", {**PAIR, "rejected": [" 5", " 6"]}),
        ("{name: kto}", PAIR),
        ("{name: kto}", {"prompt": "2 + 2 =", "completion": " 4", "label": True}),
        (
            "{name: full_step_dpo_surrogate}",
            {**GROUP, "responses_steps": [[[0, 2]], [[0, 2]]], "responses_step_rewards": [[1], [0]]},
        ),
    ],
)
def test_any_of_the_columns_that_give_it_will_do(load: Load, loss: str, record: dict[str, Any]) -> None:
    name = load(loss, record).objective().losses[0].name
    assert f"name: {name}" in loss
