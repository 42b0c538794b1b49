"""What the displacement metrics cost a training step: with them over without, measured in one run.

    python benchmarks/metrics_cost.py [--steps 40] [--repeats 3]

DPO of `demo:tiny-math` (0.9 M parameters: on a larger model the share is smaller) on its own pairs, sixteen a step,
through the trainer. With and without alternate; without means that neither the movement of both sides nor the pull of
the loss is computed. Printed is the ratio of the medians of seconds per step, minus one, over the repeats.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.vs_trl import Clock

DATA = Path(__file__).parent.parent / "recipes" / "data" / "tiny-math" / "pairs.jsonl"


@contextlib.contextmanager
def without() -> Iterator[None]:
    """The trainer without the metrics of displacement."""
    with (
        patch("prefopt.train.trainer.add_sides", lambda *_, **__: None),
        patch("prefopt.train.trainer.slopes_of", lambda _: None),
    ):
        yield


def seconds(rows: Any, steps: int) -> list[float]:
    """Of each step after the first three."""
    from transformers import AutoModelForCausalLM, TrainingArguments

    from prefopt import PreferenceTrainer
    from prefopt.demo import demo_model_path

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        args = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
            max_steps=steps,
            logging_steps=10,
            per_device_train_batch_size=16,
        )
        model = AutoModelForCausalLM.from_pretrained(demo_model_path("demo:tiny-math"))
        trainer = PreferenceTrainer(model, args, objective="dpo", train_dataset=rows, callbacks=[clock.callback])
        trainer.train()
    return [after - before for before, after in itertools.pairwise(clock.ends[2:])]


def main() -> None:
    """Print the share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    from transformers import AutoTokenizer

    from prefopt.data import DataOptions, Source, prepare_rows
    from prefopt.demo import demo_model_path

    tokenizer = AutoTokenizer.from_pretrained(demo_model_path("demo:tiny-math"))
    rows = prepare_rows([Source(str(DATA))], tokenizer, DataOptions(max_length=256, template="always")).rows
    shares = []
    for _ in range(options.repeats):
        on = statistics.median(seconds(rows, options.steps))
        with without():
            off = statistics.median(seconds(rows, options.steps))
        shares.append(on / off - 1)
        print(f"with {on * 1000:.1f} ms a step, without {off * 1000:.1f} ms: {shares[-1]:+.1%}", flush=True)
    print(f"median {statistics.median(shares):+.1%} ({min(shares):+.1%} to {max(shares):+.1%})")


if __name__ == "__main__":
    main()
