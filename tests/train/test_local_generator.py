"""A model on this machine as a generator: what it draws, from what, and that it stands behind `prefopt data`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from data_tools.errors import DataToolsError
from data_tools.generators import GeneratorOptions, GenRequest, generate
from data_tools.pipelines.problem import is_right
from data_tools.problems import make_problems
from data_tools.records import read_records, write_records
from prefopt.cli import main
from prefopt.data import DataOptions, encode_row
from prefopt.demo import DEMO_MODELS, demo_model_path
from prefopt.train.generate import generate as generate_texts
from prefopt.train.local_generator import LocalGenerator, RowSampler, chosen_tokens, open_local

MODEL = f"demo:{DEMO_MODELS[0]}"
PROBLEMS = make_problems(10, seed=3)


@pytest.fixture(scope="module")
def local() -> LocalGenerator:
    return open_local(GeneratorOptions(model=MODEL))


def drawn(seed: int = 0, **options: object) -> list[GenRequest]:
    return [
        GenRequest(p.prompt, prefill="Step 1:", temperature=1.0, max_tokens=96, seed=seed + n, **options)  # type: ignore[arg-type]
        for n, p in enumerate(PROBLEMS)
    ]


def reference_choice(logits: np.ndarray, top_p: float, uniform: float) -> int:
    """By the definition, one row, in plain loops."""
    p = np.exp(logits - logits.max())
    p /= p.sum()
    if top_p < 1:
        kept, total = set(), 0.0
        for token in sorted(range(len(p)), key=lambda t: (-p[t], t)):
            if total >= top_p and kept:
                break
            kept.add(token)
            total += p[token]
        p = np.array([p[t] if t in kept else 0.0 for t in range(len(p))])
    passed = 0.0
    for token, probability in enumerate(p):
        passed += probability
        if passed > uniform * p.sum():
            return token
    raise AssertionError


@pytest.mark.parametrize("top_p", [1e-9, 0.3, 0.9, 1.0])
def test_the_choice_is_that_of_the_definition(top_p: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(200, 11, generator=generator)
    uniform = torch.rand(200, generator=generator, dtype=torch.float64)
    chosen = chosen_tokens(logits, torch.full((200,), top_p, dtype=torch.float64), uniform)
    double = logits.double().numpy()
    assert chosen.tolist() == [reference_choice(double[i], top_p, float(uniform[i])) for i in range(200)]


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    count = 4000
    uniform = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    chosen = chosen_tokens(logits.expand(count, -1), torch.ones(count, dtype=torch.float64), uniform)
    assert torch.allclose(torch.bincount(chosen, minlength=4) / count, logits.softmax(-1), atol=1 / count)


def test_rows_have_temperatures_and_random_numbers_of_their_own() -> None:
    requests = [GenRequest("p", temperature=t, top_p=p, seed=s) for t, p, s in [(0, 1, 1), (1, 1, 2), (2, 0.5, 3)]]
    scores = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    together, alone = RowSampler(requests), [RowSampler([request]) for request in requests]
    ids = torch.zeros(3, 1, dtype=torch.long)
    for _ in range(20):
        whole = together(ids, scores)
        assert torch.equal(whole, torch.cat([one(ids[:1], scores[i : i + 1]) for i, one in enumerate(alone)]))
        assert (whole == 0).sum(-1).tolist() == [1, 1, 1]
        assert whole[0].argmax() == scores[0].argmax()


def test_answers_do_not_depend_on_the_company(local: LocalGenerator) -> None:
    together = [reply.texts[0] for reply in generate(local, drawn())]
    alone = [generate(local, [request])[0].texts[0] for request in drawn()]
    assert together == alone
    assert [reply.texts[0] for reply in generate(local, drawn()[::-1])] == together[::-1]
    assert [reply.texts[0] for reply in generate(local, drawn(seed=100))] != together


def test_greedy_answers_are_those_of_the_evaluation(local: LocalGenerator) -> None:
    requests = [GenRequest(p.prompt, max_tokens=96) for p in PROBLEMS]
    tokenizer = local.tokenizer
    ids = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": p.prompt}], add_generation_prompt=True, return_dict=False
        )
        for p in PROBLEMS
    ]
    wanted = generate_texts(local.model, tokenizer, ids, max_new_tokens=96)
    assert [reply.texts for reply in generate(local, requests)] == wanted


def test_a_prefill_is_continued_from_the_ids_that_training_puts_in_front(local: LocalGenerator) -> None:
    problem = PROBLEMS[0]
    beginning, _, step = problem.solution.rpartition("\nStep")
    beginning, body = f"{beginning}\nStep{step[:3]}", step[3:]
    row = {"prompt": problem.prompt, "initial_reason_steps": beginning, "chosen": body, "rejected": body + " No."}
    encoded = encode_row(row, local.tokenizer, DataOptions(template="always"))
    assert local._encode(GenRequest(problem.prompt, prefill=beginning)) == encoded.prompt_ids  # type: ignore[union-attr]


def test_an_answer_is_cut_at_a_stop_and_at_the_limit(local: LocalGenerator) -> None:
    (stopped,) = generate(local, [GenRequest(PROBLEMS[0].prompt, max_tokens=96, stop=("\nStep ", "zzz"))])
    (whole,) = generate(local, [GenRequest(PROBLEMS[0].prompt, max_tokens=96)])
    (short,) = generate(local, [GenRequest(PROBLEMS[0].prompt, max_tokens=5)])
    assert stopped.results[0].text == whole.texts[0].partition("\nStep ")[0]
    assert whole.texts[0].startswith(short.texts[0])
    assert [reply.results[0].finish_reason for reply in (stopped, whole, short)] == ["stop", "stop", "length"]


def test_what_cannot_be_rendered_is_a_failure_and_not_the_end(local: LocalGenerator) -> None:
    bad = GenRequest([{"role": "nobody", "content": "x"}])
    replies = generate(local, [bad, GenRequest(PROBLEMS[0].prompt, max_tokens=8)])
    assert replies[0].failures[0].reason == "bad_message"
    assert replies[1].texts


def test_the_identity_follows_the_weights(local: LocalGenerator, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in demo_model_path(MODEL).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    same = open_local(GeneratorOptions(model=str(folder)))
    assert same.identity == local.identity
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    assert open_local(GeneratorOptions(model=str(folder))).identity != local.identity


@pytest.mark.parametrize(
    ("model", "message"), [(None, "needs --model"), ("demo:tiny-mat", "Did you mean 'demo:tiny-math'")]
)
def test_models_that_are_not_there_are_refused(model: str | None, message: str) -> None:
    with pytest.raises(DataToolsError, match=message):
        open_local(GeneratorOptions(model=model))


def test_step_pairs_come_from_the_shipped_model(tmp_path: Path) -> None:
    source, out = tmp_path / "problems.jsonl", tmp_path / "pairs.jsonl"
    write_records(source, [problem.record() for problem in PROBLEMS])
    words = ["data", "step-pairs", str(source), "--out", str(out), "--model", MODEL, "--prefill", "Step 1:"]
    words += ["--max-tokens", "96", "--samples", "3", "--temperature", "1", "--corrections", "4", "--rollouts", "3"]
    assert main([*words, "--locate", "equations", "--locate", "rollouts", "--batch-size", "16"]) == 0
    rows = list(read_records(out))
    assert len(rows) >= 3
    for row in rows:
        assert is_right(row["initial_reason_steps"] + row["full_chosen"], row["answer"]) is True
        assert is_right(row["initial_reason_steps"] + row["full_rejected"], row["answer"]) is False
        assert row["chosen_steps"] == [[0, len(row["chosen"])]]
