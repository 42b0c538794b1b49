"""A real server, `transformers serve` with the demonstration model: what it answers, and that it may die."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from data_tools.cli import main
from data_tools.generators import GeneratorOptions, GenRequest, Server, ServerSettings, generate
from data_tools.problems import make_problems
from data_tools.records import read_records, write_records
from prefopt.demo import DEMO_MODELS, demo_model_path

MODEL = f"demo:{DEMO_MODELS[0]}"
TEMPLATE = "<|user|>{prompt}<|assistant|>"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(find_spec(name) for name in ("fastapi", "uvicorn", "openai")), reason="needs transformers[serving]"
    ),
]


@contextmanager
def served(port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running `transformers serve`; killed, not asked, when the block ends."""
    program = Path(sys.executable).with_name("transformers")
    words = [program, "serve", demo_model_path(MODEL), "--port", str(port), "--host", "127.0.0.1", "--device", "cpu"]
    with log.open("ab") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    try:
        for _ in range(600):
            assert process.poll() is None, log.read_text()
            try:
                with urlopen(f"http://127.0.0.1:{port}/health") as answer:
                    assert json.load(answer) == {"status": "ok"}
                break
            except (URLError, ConnectionError):
                time.sleep(0.2)
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture
def port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        number: int = sock.getsockname()[1]
    return number


def settings(port: int, **more: object) -> ServerSettings:
    where = {"url": f"http://127.0.0.1:{port}/v1", "model": str(demo_model_path(MODEL)), "concurrency": 1}
    return ServerSettings(**{**where, "endpoint": "completions", "template": TEMPLATE, **more})  # type: ignore[arg-type]


def test_a_served_model_continues_a_prefill_as_it_does_here(port: int, tmp_path: Path) -> None:
    from prefopt.train.local_generator import open_local

    problems = make_problems(12, seed=5)
    requests = [GenRequest(p.prompt, prefill=f"Step 1:{p.solution[7:24]}", max_tokens=128) for p in problems]
    with served(port, tmp_path / "log"):
        there = generate(Server(settings(port)), requests)
        chat = generate(Server(settings(port, endpoint="chat")), [GenRequest(problems[0].prompt, max_tokens=128)])
        cut = generate(Server(settings(port)), [GenRequest(problems[0].prompt, max_tokens=3)])
        stopped = generate(Server(settings(port)), [GenRequest(problems[0].prompt, max_tokens=128, stop=("\nStep ",))])
        refused = generate(Server(settings(port, body={"nonsense": 1})), [GenRequest("p")])
    here = generate(open_local(GeneratorOptions(model=MODEL)), requests)
    assert [reply.texts for reply in there] == [reply.texts for reply in here]
    assert chat[0].texts[0].startswith("Step 1:")
    assert cut[0].results[0].finish_reason == "length"
    assert stopped[0].texts[0].startswith("Step 1:")
    assert "\nStep" not in stopped[0].texts[0]
    assert refused[0].failures[0].reason == "http_422"


def test_a_real_server_may_die_and_come_back(port: int, tmp_path: Path) -> None:
    source = tmp_path / "problems.jsonl"
    write_records(source, [p.record() for p in make_problems(8, seed=6)])
    there = f"--generator server --url http://127.0.0.1:{port}/v1 --model {demo_model_path(MODEL)}"
    asked = "--endpoint completions --concurrency 1 --retries 100 --max-wait 1"
    drawn = "--samples 4 --temperature 1 --top-p 1 --rollouts 3 --corrections 4 --max-tokens 128"
    words = ["step-pairs", str(source), *f"{there} {asked} {drawn} --locate equations --locate rollouts".split()]
    words += ["--template", TEMPLATE, "--prefill", "Step 1:", "--body", sampled()]
    undisturbed, disturbed = tmp_path / "undisturbed.jsonl", tmp_path / "disturbed.jsonl"
    journal = tmp_path / "disturbed.jsonl.answers.jsonl"
    with served(port, tmp_path / "log"):
        assert main([*words, "--out", str(undisturbed)]) == 0
    rows = list(read_records(undisturbed))
    assert rows
    with served(port, tmp_path / "log"):
        process = subprocess.Popen([sys.executable, "-m", "data_tools", *words, "--out", str(disturbed)])
        while not (journal.exists() and journal.read_bytes().count(b"\n") >= 20):
            assert process.poll() is None
            time.sleep(0.01)
    assert process.poll() is None, "the run waits for the server"
    with served(port, tmp_path / "log"):
        assert process.wait(timeout=300) == 0
    assert disturbed.read_bytes() == undisturbed.read_bytes()


def sampled() -> str:
    """This server samples only when the model's own settings say so, or those that a request brings along."""
    return json.dumps({"generation_config": json.dumps({"do_sample": True, "eos_token_id": 1, "pad_token_id": 0})})
