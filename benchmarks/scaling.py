"""How cost grows: with the length of prompts, the number of responses, the vocabulary, and the size of the data set.

    python benchmarks/scaling.py [--only length,responses,vocabulary,rows] [--steps 3]

A small model (width 256, 4 layers), DPO or a loss on all rejected responses, plain gradient descent in float32 on
the CPU; every point is a process of its own. Printed are seconds and peak resident memory of a step beyond the imports,
each also as a ratio to the first point of its series. `rows` takes tokenized data sets of 1,000 to 100,000 rows: what
grows there is the start of training, and it must grow no faster than the data (tokenizing is not part of it). The last
column is what a step holds beyond the weights, their gradients and the frozen copy; with the vocabulary it must not
grow by more than blocks of logits (128 MiB each).
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.vs_trl import Clock, loss_on

MIB = 2**20


@dataclass(frozen=True)
class Point:
    """Mean lengths in tokens, responses per prompt, entries of the vocabulary, rows of the data set."""

    prompt: int = 128
    response: int = 32
    responses: int = 2
    vocabulary: int = 32_000
    rows: int = 64


SERIES: dict[str, list[Point]] = {
    "length": [Point(prompt=n) for n in (128, 256, 512, 1024)],
    "responses": [Point(responses=n) for n in (2, 3, 5, 9)],
    "vocabulary": [Point(vocabulary=n) for n in (32_000, 128_000, 256_000)],
    "rows": [Point(prompt=16, response=8, rows=n) for n in (1_000, 10_000, 100_000)],
}
NAMES = {"length": "prompt", "responses": "responses", "vocabulary": "vocabulary", "rows": "rows"}


def data(point: Point, folder: str) -> Any:
    """Token ids, as a table on the disk, which is never whole in memory: its making must not hide the run's peak."""
    from datasets import Dataset

    chance = random.Random(0)

    def ids(mean: int) -> list[int]:
        return [chance.randrange(10, 30_000) for _ in range(chance.randint(3 * mean // 4, 5 * mean // 4))]

    def rows() -> Any:
        for number in range(point.rows):
            prompt, responses = ids(point.prompt), [ids(point.response) for _ in range(point.responses)]
            masks = [[True] * len(response) for response in responses]
            longest = len(prompt) + max(map(len, responses))
            yield {"id": str(number), "prompt_ids": prompt, "responses": responses, "masks": masks, "length": longest}

    return Dataset.from_generator(rows, cache_dir=folder)


def measure(point: Point, steps: int) -> dict[str, float]:
    """Seconds to the first step and per step; peak MiB beyond the imports, and that beyond three times the weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

    from prefopt import PreferenceTrainer

    with tempfile.TemporaryDirectory() as folder:
        table = data(point, folder)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        torch.manual_seed(0)
        sizes = {"hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 704, "num_attention_heads": 8}
        model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=point.vocabulary, max_position_embeddings=4096))
        size = sum(p.numel() * 4 for p in model.parameters())
        args = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
            max_steps=steps,
            per_device_train_batch_size=4,
            optim="sgd",  # whose step holds nothing of its own
        )
        clock, began = Clock(), time.perf_counter()
        loss = loss_on(point.responses)
        trainer = PreferenceTrainer(model, args, objective=loss, train_dataset=table, callbacks=[clock.callback])
        trainer.train()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    return {
        "first": clock.ends[0] - began,
        "step": clock.per_step(),
        "memory": peak / MIB,
        "beyond": (peak - 3 * size) / MIB,
    }


def run(point: Point, steps: int) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--point", json.dumps(asdict(point)), "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a table per series."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SERIES), help="series, separated by commas")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print(json.dumps(measure(replace(Point(), **json.loads(options.point)), options.steps)))
        return
    for name in options.only.split(","):
        print(
            f"{name:>12} {'s to step 1':>12} {'s/step':>8} {'ratio':>6} {'MiB':>7} {'ratio':>6} {'beyond weights':>15}"
        )
        first: dict[str, float] = {}
        for point in SERIES[name]:
            found = run(point, options.steps)
            first = first or found
            print(
                f"{getattr(point, NAMES[name]):12,} {found['first']:12.2f} {found['step']:8.2f} "
                f"{found['step'] / first['step']:6.2f} {found['memory']:7.0f} {found['memory'] / first['memory']:6.2f} "
                f"{found['beyond']:15.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
