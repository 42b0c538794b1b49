"""What a loss costs beside the training step that it belongs to: a ratio for each loss, measured in one run.

    python benchmarks/loss_cost.py [--losses dpo,kto] [--repeats 20]

The step is that of `demo:tiny-math` on real rows: reference forward, policy forward, loss, backward, optimizer. The
loss alone, with its backward pass down to the token log-probabilities, is timed between such steps on scores of the
same shape, so that a noisy machine disturbs both alike. Ratios are of medians. A loss on several responses is set
against a step with as many.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from prefopt import Draw, StepContext, get_loss, loss_names
from prefopt.data import DataOptions, Source, prepare_rows
from prefopt.data.collate import Collator
from prefopt.demo import demo_model_path
from prefopt.losses import Loss
from prefopt.scores import Scores
from prefopt.scoring import score
from prefopt.testing import make_scores

ROWS = 16
DATA = Path(__file__).parent.parent / "recipes" / "data" / "tiny-math"
RESPONSES = {"single": 1, "pair": 2, "many": 4}


class Bench:
    """A real batch of each width and the step that trains on it."""

    def __init__(self) -> None:
        folder = demo_model_path("demo:tiny-math")
        self.policy = AutoModelForCausalLM.from_pretrained(folder)
        self.reference = AutoModelForCausalLM.from_pretrained(folder).requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-6)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        options = DataOptions(max_length=256, template="always")
        rows = prepare_rows([Source(str(DATA / "pairs.jsonl"))], tokenizer, options, seed=0, name="train").rows
        self.collate, self.rows = Collator(tokenizer.pad_token_id), [rows[i] for i in range(ROWS)]

    def batch(self, responses: int) -> dict[str, torch.Tensor]:
        """The rows with one, two or more responses; further ones repeat the rejected one."""
        fitted = []
        for row in self.rows:
            lists = {name: (row[name] + [row[name][1]] * responses)[:responses] for name in ("responses", "masks")}
            fitted.append({**row, **lists})
        return self.collate(fitted)

    def step(self, batch: dict[str, torch.Tensor]) -> None:
        """One whole training step with `dpo`, the plainest loss."""
        with torch.no_grad():
            known = score(self.reference, batch)
        scores = score(self.policy, batch).against(known, mask=batch["mask"])
        gap = scores.logratios[:, 0] - scores.logratios[:, -1]
        (-torch.nn.functional.logsigmoid(0.1 * gap)).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def scores_for(self, loss: Loss, batch: dict[str, torch.Tensor]) -> Scores:
        """The batch's own log-probabilities, and made-up values of whatever else the loss reads."""
        b, _, t = batch["mask"].shape
        made = make_scores(loss, prompts=b, tokens=t, dtype=torch.float32)
        policy = score(self.policy, batch).logps
        known = score(self.reference, batch).logps if made.reference is not None else None
        return dataclasses.replace(made, policy=policy, reference=known, mask=batch["mask"])


def evaluated(loss: Loss, scores: Scores) -> Callable[[], None]:
    context = StepContext(draw=Draw(), total_steps=10)

    def run() -> None:
        policy = scores.policy.clone().requires_grad_()
        out = loss(dataclasses.replace(scores, policy=policy), context)
        out.losses.mean().backward()

    return run


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--losses", default="", help="comma-separated names; all by default")
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    names = arguments.losses.split(",") if arguments.losses else loss_names()
    bench, shares = Bench(), {}
    print(f"{ROWS} rows of demo:tiny-math, {torch.get_num_threads()} threads; loss alone against the whole step\n")
    print(f"{'loss':24} {'step, ms':>9} {'loss, ms':>9} {'share':>7}")
    for name in names:
        loss = get_loss(name)
        batch = bench.batch(RESPONSES[loss.responses])
        run = evaluated(loss, bench.scores_for(loss, batch))
        bench.step(batch)
        run()
        pairs = [(seconds(lambda: bench.step(batch)), seconds(run)) for _ in range(arguments.repeats)]  # noqa: B023
        step, alone = (statistics.median(values) for values in zip(*pairs, strict=True))
        shares[name] = alone / step
        print(f"{name:24} {1000 * step:9.1f} {1000 * alone:9.2f} {100 * shares[name]:6.2f}%", flush=True)
    worst = max(shares, key=shares.__getitem__)
    print(f"\nlargest share: {worst}, {100 * shares[worst]:.2f} % of a step")


if __name__ == "__main__":
    main()
