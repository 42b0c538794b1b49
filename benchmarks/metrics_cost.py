"""What the displacement metrics cost a training step: with them over without, step by step in one run.

    python benchmarks/metrics_cost.py [--steps 400]

DPO of `demo:tiny-math` (0.9 M parameters: on a larger model the share is smaller) on its own pairs, sixteen a step,
through the trainer, which logs every step. Every sixteen rows are trained on twice in a row, once with the metrics and
once without, each first in turn; without means that neither the movement of both sides nor the pull of the loss is
computed. Printed is the median over every four steps of with over without, minus one, with a 95 % interval from
resampled fours; on the clock, and in processor time, which does not count what other programs took.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

DATA = Path(__file__).parent.parent / "recipes" / "data" / "tiny-math" / "pairs.jsonl"
BATCH, WARM_UP = 16, 8
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}


class Steps:
    """When each step began, and whether the metrics are computed in it: in the first and the last of every four."""

    def __init__(self) -> None:
        from transformers import TrainerCallback

        steps = self
        self.begins: dict[str, list[float]] = {name: [] for name in CLOCKS}
        self.on = True

        class Begin(TrainerCallback):
            def on_step_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
                steps.on = state.global_step % 4 in (0, 3)
                for name, clock in CLOCKS.items():
                    steps.begins[name].append(clock())

        self.callback = Begin()

    def shares(self, clock: str) -> list[float]:
        """With over without, minus one, of each four steps: what came first in one half came second in the other."""
        took = [after - before for before, after in itertools.pairwise(self.begins[clock])]
        fours = [took[k : k + 4] for k in range(WARM_UP, len(took) - 3, 4)]
        return [(first + last) / (second + third) - 1 for first, second, third, last in fours]


@contextlib.contextmanager
def switched(steps: Steps) -> Iterator[None]:
    """The trainer with the metrics of displacement where `steps` says so, and without elsewhere."""
    from prefopt.train.trainer import add_sides, slopes_of

    with (
        patch("prefopt.train.trainer.add_sides", lambda *args, **more: add_sides(*args, **more) if steps.on else None),
        patch("prefopt.train.trainer.slopes_of", lambda step: slopes_of(step) if steps.on else None),
    ):
        yield


def train(rows: Any, count: int) -> Steps:
    """Training over `count` steps, every sixteen rows twice in a row."""
    from transformers import AutoModelForCausalLM, TrainingArguments

    from prefopt import PreferenceTrainer
    from prefopt.demo import demo_model_path

    steps = Steps()
    places = [(k // 2 * BATCH + place) % len(rows) for k in range(count + 1) for place in range(BATCH)]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), switched(steps):
        args = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
            max_steps=count + 1,
            logging_steps=1,
            per_device_train_batch_size=BATCH,
            train_sampling_strategy="sequential",
        )
        model = AutoModelForCausalLM.from_pretrained(demo_model_path("demo:tiny-math"))
        trainer = PreferenceTrainer(
            model, args, objective="dpo", train_dataset=rows.select(places), callbacks=[steps.callback]
        )
        trainer.train()
    return steps


def interval(values: list[float], draws: int = 2000) -> tuple[float, float]:
    """95 % interval of the median, from medians of resampled values."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(draws))
    return medians[round(0.025 * draws)], medians[round(0.975 * draws) - 1]


def main() -> None:
    """Print the share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    from transformers import AutoTokenizer

    from prefopt.data import DataOptions, Source, prepare_rows
    from prefopt.demo import demo_model_path

    tokenizer = AutoTokenizer.from_pretrained(demo_model_path("demo:tiny-math"))
    rows = prepare_rows([Source(str(DATA))], tokenizer, DataOptions(max_length=256, template="always")).rows
    steps = train(rows, options.steps)
    for clock in CLOCKS:
        shares = steps.shares(clock)
        low, high = interval(shares)
        print(f"{clock:10} {statistics.median(shares):+.2%} ({low:+.2%} to {high:+.2%}) over {len(shares)} x 4 steps")


if __name__ == "__main__":
    main()
