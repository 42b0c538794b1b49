"""How much faster training is when the reference's log-probabilities lie in a cache: live over cached, in one run.

    python benchmarks/cached_reference.py [--workload chat,long,step,negatives] [--precision float32] [--repeats 3]

Model, rows and steps are those of `vs_trl.py`; live and cached alternate, each in a process of its own. The cache is
filled before the clock starts. Printed are the ratio of seconds per step, median, smallest and largest over the
repeats, and the ratio of peak memory, cached over live.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import vs_trl
from benchmarks.vs_trl import WORKLOADS, arguments, model, rows, spread


def measure(name: str, precision: str, steps: int, folder: Path, *, cached: bool) -> dict[str, float]:
    """Seconds per step and peak resident MiB; without `cached` this process also fills the cache for the next one."""
    import torch
    from transformers import TrainingArguments

    from prefopt.data.collate import Collator
    from prefopt.scoring.cache import Cache, CachedReference, fill, prepare
    from prefopt.scoring.modes import freeze
    from prefopt.scoring.reference import ModelReference
    from prefopt.train.references import default_scorer

    load = WORKLOADS[name]
    torch.set_num_threads(os.cpu_count() or 1)
    data = rows(load, load.batch * steps)
    with tempfile.TemporaryDirectory() as out:
        settings = arguments(out, load, precision, steps)
        seconds = vs_trl.ours(data, settings, CachedReference(Cache.open(folder)) if cached else None)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if not cached:
            live = ModelReference(freeze(model()), default_scorer(TrainingArguments(**settings)))
            made = vs_trl.prepared(data)
            batches = (Collator()(made[start : start + load.batch]) for start in range(0, len(made), load.batch))
            fill(prepare(folder, {"model": name, "precision": precision}), batches, live)
    return {"seconds": seconds, "mebibytes": peak}


def run(folder: Path, name: str, precision: str, steps: int, *, cached: bool) -> dict[str, float]:
    """`measure` in a process of its own."""
    what = ["--folder", str(folder), "--workload", name, "--precision", precision, "--steps", str(steps)]
    command = [sys.executable, __file__, *what, *(["--cached"] if cached else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a line per workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default=",".join(WORKLOADS))
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help=f"of a run, the first {vs_trl.WARM_UP} to warm up")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cached", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        print(
            json.dumps(
                measure(options.workload, options.precision, options.steps, options.folder, cached=options.cached)
            )
        )
        return
    print(f"{'workload':10} {'precision':9} {'time, live / cached':>24} {'memory, cached / live':>24}")
    for name in options.workload.split(","):
        for precision in options.precision.split(","):
            pairs = []
            for _ in range(options.repeats):
                with tempfile.TemporaryDirectory() as temporary:
                    live, cached = (
                        run(Path(temporary) / "cache", name, precision, options.steps, cached=cached)
                        for cached in (False, True)
                    )
                pairs.append((live, cached))
            faster = [live["seconds"] / cached["seconds"] for live, cached in pairs]
            smaller = [cached["mebibytes"] / live["mebibytes"] for live, cached in pairs]
            print(f"{name:10} {precision:9} {spread(faster):>24} {spread(smaller):>24}", flush=True)


if __name__ == "__main__":
    main()
