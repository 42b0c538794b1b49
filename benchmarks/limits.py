"""How much of the machine's matrix-multiplication peak the useful operations of training reach.

    python benchmarks/limits.py [--workload chat] [--precision float32,bfloat16] [--repeats 5] [--profile]

Useful are the floating-point operations that DPO with a live reference cannot do without: each prompt once, each
response once, attention where a token really sees another, the head where a token is scored; two per weight and token
forward, four backward, two for the reference. Norms, activation functions, softmax and the optimizer count as nothing
but take time. The peak is measured in the same process on the same threads: the fastest of the products that the model
consists of, and one large square. Peak and training alternate; printed are median, smallest and largest over the
repeats. `--profile` prints where the time of the steps goes. Model, workloads and steps are those of `vs_trl.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import vs_trl
from benchmarks.vs_trl import WARM_UP, WORKLOADS, Workload, spread


@dataclass(frozen=True)
class Sizes:
    """Weights of the linear layers and of the head, number of layers, and heads times their width in attention."""

    body: int
    head: int
    layers: int
    attention: int

    @classmethod
    def of(cls, model: Any) -> Sizes:
        """Read from the model itself."""
        from torch import nn

        head, config = model.get_output_embeddings(), model.config
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            body=sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear) and m is not head),
            head=head.weight.numel(),
            layers=config.num_hidden_layers,
            attention=config.num_attention_heads * width,
        )


def forward_operations(sizes: Sizes, prompt: int, responses: Sequence[int]) -> int:
    """Floating-point operations of one forward pass over a prompt and its responses, none of them done twice."""
    scored = sum(responses)
    seen = prompt * (prompt + 1) // 2 + sum(t * prompt + t * (t + 1) // 2 for t in responses)
    products = 2 * sizes.body * (prompt + scored) + 2 * sizes.head * scored
    return products + 4 * sizes.layers * sizes.attention * seen  # queries by keys, and shares by values


def training_operations(sizes: Sizes, rows: Sequence[dict[str, Any]]) -> int:
    """Forward, backward, and the forward pass of a live reference, over rows as `vs_trl.rows` makes them."""
    return sum(4 * forward_operations(sizes, len(row["prompt"]), [len(r) for r in row["responses"]]) for row in rows)


def products(load: Workload, sizes: Sizes, config: Any) -> list[tuple[int, int, int]]:
    """The matrix products that the model consists of, rows by inner by columns, and a large square."""
    tokens = load.batch * (load.prompt + (1 + load.rejected) * load.response)
    scored, wide, inner = load.batch * (1 + load.rejected) * load.response, config.hidden_size, config.intermediate_size
    return [
        (tokens, wide, inner),
        (tokens, inner, wide),
        (tokens, wide, sizes.attention),
        (inner, tokens, wide),
        (scored, wide, config.vocab_size),
        (2048, 2048, 2048),
    ]


def peak(shapes: Sequence[tuple[int, int, int]], dtype: Any, *, calls: int = 7) -> float:
    """Floating-point operations per second of the fastest product, each taken at the median of its calls."""
    import torch

    found = []
    for m, k, n in shapes:
        left, right = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
        seconds = []
        for _ in range(calls):
            start = time.perf_counter()
            torch.mm(left, right.t())
            seconds.append(time.perf_counter() - start)
        found.append(2 * m * k * n / statistics.median(seconds))
    return max(found)


def seconds_per_step(data: list[dict[str, Any]], load: Workload, precision: str, steps: int) -> float:
    """Of the steps after the warm-up."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):  # the trainer logs there
        return vs_trl.ours(data, vs_trl.arguments(folder, load, precision, steps))


def profile(data: list[dict[str, Any]], load: Workload, precision: str, steps: int) -> str:
    """The operations that take most of the time of the steps after the warm-up."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watching
    from transformers import TrainerCallback

    watch = watching(activities=[ProfilerActivity.CPU])

    class Watched(vs_trl.Clock):
        def __init__(self) -> None:
            super().__init__()
            ticks = self.callback.on_step_end

            class Watch(TrainerCallback):
                def on_step_end(self, *arguments: Any, **options: Any) -> None:
                    ticks(*arguments, **options)
                    if arguments[1].global_step == WARM_UP:
                        watch.start()
                    elif arguments[1].global_step == steps:
                        watch.stop()

            self.callback = Watch()

    with patch.object(vs_trl, "Clock", Watched):
        seconds_per_step(data, load, precision, steps)
    events = sorted(watch.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    lines = [f"  {e.self_cpu_time_total / total:6.1%} {e.count // (steps - WARM_UP):6} {e.key}" for e in events[:16]]
    return "\n".join([f"  {'share':>6} {'calls':>6} operation, {precision}, per step", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="chat", help=f"of {', '.join(WORKLOADS)}; several separated by commas")
    parser.add_argument("--precision", default="float32,bfloat16")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="optimizer steps of a run, the first of them to warm up")
    parser.add_argument("--profile", action="store_true", help="also print where the time goes")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(os.cpu_count() or 1)
    model = vs_trl.model()
    sizes, config = Sizes.of(model), model.config
    del model
    print(
        f"{'workload':10} {'precision':9} {'share of the peak, %':>24} {'peak, GFLOP/s':>26} "
        f"{'useful GFLOP':>13} s/step"
    )
    for name in options.workload.split(","):
        load = WORKLOADS[name]
        data = vs_trl.rows(load, load.batch * options.steps)
        useful = training_operations(sizes, data[load.batch * WARM_UP :]) / (options.steps - WARM_UP)
        shapes = products(load, sizes, config)
        for precision in options.precision.split(","):
            peaks, seconds = [], []
            for _ in range(options.repeats):
                peaks.append(peak(shapes, getattr(torch, precision)))
                seconds.append(seconds_per_step(data, load, precision, options.steps))
            shares = [100 * useful / (best * step) for best, step in zip(peaks, seconds, strict=True)]
            best, step = spread([each / 1e9 for each in peaks]), statistics.median(seconds)
            print(
                f"{name:10} {precision:9} {spread(shares):>24} {best:>26} {useful / 1e9:13.0f} {step:6.2f}", flush=True
            )
            if options.profile:
                print(profile(data, load, precision, options.steps), flush=True)


if __name__ == "__main__":
    main()
