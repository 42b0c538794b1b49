"""Run directories and diagnoses that no model had to be run for, with the table's own columns and the summary's own
arithmetic."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from prefopt.diagnostics.displacement import QUADRANTS
from prefopt.diagnostics.summary import PairNumbers
from prefopt.diagnostics.table import columns

HOSTILE = {
    "script": "<script>window.pwned = 1</script>",
    "closing": "</script><script>window.pwned = 2</script><!-- <script> -->",
    "handler": "<img src=x onerror=\"window.pwned = 3\"><svg onload='window.pwned = 4'>",
    "template": "{{ 7 * 7 }}{% raw %}${window.pwned = 5}`window.pwned = 6`",
    "attribute": '" onmouseover="window.pwned = 7" autofocus onfocus=\'window.pwned = 8\'',
    "link": "[click](javascript:window.pwned=9) <a href='javascript:window.pwned=10'>x</a> ![i](http://example.invalid/i.png)",
    "style": "</style><style>body{display:none}</style><link rel=stylesheet href=//example.invalid/x.css>",
    "bidi": "safe \u202eevil\u202c \u2067right\u2069 שלום عالم",
    "controls": "null \x00 escape \x1b[31m line\u2028paragraph\u2029 end",
    "long word": "W" * 20_000,
    "huge": "many words of one response " * 4_000,
    "combining": "Z" + "\u0351\u0327" * 300,
    "table": "| a | b |\n|---|---|\n````\n# heading\n\n<details>\n```",
}
"""Texts that try to be more than text."""


def pair(number: int, draw: random.Random, *, moved: bool, **given: Any) -> dict[str, Any]:
    """One line of the table; every other number shares its prompt with the one before."""
    chosen_tokens, rejected_tokens = draw.randint(5, 60), draw.randint(5, 60)
    found: dict[str, Any] = {
        "id": f"pair-{number}",
        "rejected_index": 0,
        "ches": draw.gauss(-1000, 4000),
        "ln_ches": draw.gauss(-0.5, 1),
        "cosine": draw.uniform(0.7, 1),
        "last_inner_product": draw.gauss(250, 10),
        "chosen_tokens": chosen_tokens,
        "rejected_tokens": rejected_tokens,
        "length_gap": chosen_tokens - rejected_tokens,
        "edit_distance": draw.random(),
        "common_prefix": draw.randint(0, 5),
        "flag": "",
        "prompt": f"Question {number // 2}?",
        "chosen": f"The answer is {number}.",
        "rejected": f"The answer is {number + 1}.",
    }
    if moved:
        found |= _movement(draw, found)
    return found | given


def _movement(draw: random.Random, row: Mapping[str, Any]) -> dict[str, Any]:
    chosen, rejected = draw.gauss(-0.5, 1), draw.gauss(-2, 1)
    parts = [draw.random() for _ in range(3)]
    start, now = ([part / sum(parts) for part in parts], [1 / 6, 1 / 3, 1 / 2])
    sides = ("chosen", "rejected", "other")
    return {
        "chosen_start": -10.0,
        "chosen_now": -10.0 + chosen,
        "rejected_start": -12.0,
        "rejected_now": -12.0 + rejected,
        "chosen_delta": chosen,
        "rejected_delta": rejected,
        "chosen_delta_per_token": chosen / row["chosen_tokens"],
        "rejected_delta_per_token": rejected / row["rejected_tokens"],
        "quadrant": QUADRANTS[2 * (chosen > 0) + (rejected < 0)],
        "greedy_start": -0.5,
        "greedy_now": -0.5 + draw.gauss(0.1, 0.1),
        "greedy_held": -0.4,
        "branch_position": 3,
        "branch_chosen": " five",
        "branch_rejected": " six",
        **{f"branch_{side}_start": value for side, value in zip(sides, start, strict=True)},
        **{f"branch_{side}_now": value for side, value in zip(sides, now, strict=True)},
        "branch_greedy_start": " five",
        "branch_greedy_now": " the",
        "branch_greedy_probability_start": 0.4,
        "branch_greedy_probability_now": 0.5,
        "branch_gainer": draw.choice([" the", " five"]),
        "branch_gain": 0.1,
        "branch_gainer_is_third": draw.random() < 0.5,
    }


def pairs(count: int, *, moved: bool = True, seed: int = 0) -> list[dict[str, Any]]:
    """Lines of a table."""
    draw = random.Random(seed)
    return [pair(number, draw, moved=moved) for number in range(count)]


def hostile_pairs() -> list[dict[str, Any]]:
    """Lines whose id, prompt, responses and tokens are hostile; they fell most, so they are read first."""
    draw = random.Random(1)
    lines = []
    for number, (name, text) in enumerate(HOSTILE.items()):
        given = {
            "id": f"{name} {text[:300]}",
            "prompt": text,
            "chosen": f"chosen {text}",
            "rejected": f"{text} rejected",
        }
        line = pair(number, draw, moved=True, **given) | {"chosen_delta": -20.0 - number}
        lines.append(line | {"branch_chosen": text[:200], "branch_gainer": text[:200]})
    return lines + pairs(30)


def diagnosis(folder: Path, lines: Sequence[Mapping[str, Any]], **summary: Any) -> Path:
    """A folder as `prefopt diagnose` leaves it."""
    moved = "chosen_delta" in lines[0]
    folder.mkdir(parents=True, exist_ok=True)
    tracks = dict.fromkeys(("greedy_start", "greedy_now", "greedy_held"), pa.float64()) if moved else {}
    schema = pa.schema(list((columns(moved=moved) | tracks).items()))
    pq.write_table(pa.Table.from_pylist(list(lines), schema=schema), folder / "pairs.parquet", row_group_size=100)
    numbers = PairNumbers()
    numbers.add([dict(line) for line in lines])
    found = {
        "diagnosis": "movement" if moved else "scores",
        "rows": len(lines),
        "pairs": len(lines),
        "flags": {},
        "scores": numbers.scores(),
        "spearman_with_length_gap": numbers.length_bias(),
        **({"movement": numbers.movement()} if moved else {}),
        "data": {"lost": {}},
        "models": {"start": {"name_or_path": "some/model"}},
        "settings": {"batch_tokens": 4096},
        "versions": {},
    }
    (folder / "summary.json").write_text(json.dumps(found | summary), encoding="utf-8")
    return folder


RECIPE = "model:\n  name_or_path: some/model\nloss: {name: dpo, beta: 0.1}\ntraining:\n  learning_rate: 1.0e-6\n"


def metrics(steps: int = 12) -> list[dict[str, Any]]:
    """Lines of `metrics.jsonl`: an evaluation before and after, and training in between."""
    evaluated = [{"step": step, "eval_heldout_answer_accuracy": value} for step, value in ((0, 0.25), (steps, 0.75))]
    trained = [
        {
            "step": step,
            "loss": 0.7 - 0.01 * step,
            "displacement/chosen_delta": -0.1 * step,
            "displacement/rejected_delta": -0.3 * step,
            "displacement/chosen_dropped": step / steps,
            "displacement/both_dropped": step / (2 * steps),
            "logps/chosen": -10 - 0.1 * step,
            "logps/rejected": -12 - 0.3 * step,
            "rewards/accuracies": 0.5 + 0.5 * step / steps,
        }
        for step in range(1, steps + 1)
    ]
    return [evaluated[0], *trained, evaluated[1]]


def run(folder: Path, lines: Sequence[Mapping[str, Any]] | None = None, *, recipe: str = RECIPE) -> Path:
    """A directory as training leaves it, without the model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(recipe, encoding="utf-8")
    record = {"prefopt": "0.1.0", "device": "cpu", "plan": {"objective": "dpo (beta 0.1)", "model": "some/model"}}
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    text = "".join(json.dumps(line) + "\n" for line in (metrics() if lines is None else lines))
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    return folder


def diagnosed_run(folder: Path, lines: Sequence[Mapping[str, Any]]) -> list[Path]:
    """A run and the diagnosis of its movement."""
    trained = run(folder / "trained")
    models = {"start": {"name_or_path": "some/model"}, "policy": {"name_or_path": str(trained)}}
    return [trained, diagnosis(folder / "moved", lines, models=models)]
