"""On a real chat model and real pairs: scores from text, through the chat template, one response at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from prefopt.cli import main
from prefopt.train.model import load_model
from tests.diagnostics.independent import scores_of
from tests.train.test_smollm2 import smollm2  # noqa: F401  a fixture

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_scores_of_real_pairs_equal_those_from_their_text(smollm2: Path, tmp_path: Path) -> None:  # noqa: F811
    lines = (ROOT / "recipes" / "data" / "gsm8k" / "pairs.jsonl").read_text().splitlines(keepends=True)[:12]
    (tmp_path / "pairs.jsonl").write_text("".join(lines))
    out = tmp_path / "out"
    assert main(["diagnose", "--model", str(smollm2), "--data", str(tmp_path / "pairs.jsonl"), "--out", str(out)]) == 0
    model, words = load_model(str(smollm2)).eval(), AutoTokenizer.from_pretrained(smollm2)
    found = [json.loads(line) for line in (out / "pairs.jsonl").read_text().splitlines()]
    assert len(found) == len(lines)
    for record, line in zip(found, lines, strict=True):
        row = json.loads(line)
        prompt = row["prompt"] if isinstance(row["prompt"], list) else [{"role": "user", "content": row["prompt"]}]
        start = words.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        texts = [side[-1]["content"] if isinstance(side, list) else side for side in (row["chosen"], row["rejected"])]
        ids = words(start).input_ids
        responses = [words(start + text + words.eos_token).input_ids[len(ids) :] for text in texts]
        masks = [[True] * len(response) for response in responses]
        expected = scores_of(model, {"prompt_ids": ids, "responses": responses, "masks": masks})
        assert (record["chosen_tokens"], record["rejected_tokens"]) == tuple(map(len, responses))
        for name, value in expected.items():
            assert record[name] == pytest.approx(value, rel=1e-4, abs=1e-4), name
