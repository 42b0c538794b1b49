"""Pairs per second of CHES scores against the published procedure, and memory against the number of pairs.

    python benchmarks/ches.py speed  --model MODEL --data PAIRS [--pairs 64] [--spread] [--repeats 3]
    python benchmarks/ches.py memory --model MODEL --data PAIRS [--pairs 100 10000]

`speed`: the published procedure reads each response in a forward pass of its own, asks for all hidden states, and sums
those of the last layer. Both sides read the same tokenized pairs, in one process, batch by batch in turn, so that a
noisy machine disturbs both alike; what counts is the ratio, of time on the clock and of processor time. The layouts are
compared once before the clock starts, as in every run. The pairs are the first of the file, or with `--spread` every
n-th one: a file that holds several pairs of one prompt one after the other then loses what prefopt gains by reading
each prompt once.

`memory`: each number of pairs is a fresh process that runs `prefopt diagnose`; the file is repeated where it has fewer
pairs. What is reported is the peak resident memory of the whole process, the model included.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def load(model: str, data: str, count: int, *, spread: bool) -> tuple[Any, list[dict[str, Any]]]:
    """The model and some rows of the data: the first, or every n-th."""
    from prefopt.data import DataOptions, Source
    from prefopt.diagnostics.items import windows
    from prefopt.diagnostics.records import read_pairs
    from prefopt.train.model import load_model, load_tokenizer

    pairs = read_pairs([Source(data)], load_tokenizer(model), DataOptions())
    places = [k * len(pairs.table) // count if spread else k for k in range(min(count, len(pairs.table)))]
    rows = [row for _, window in windows(pairs.table.select(places)) for row in window]
    return load_model(model).eval(), rows


def published(model: Any, rows: Sequence[dict[str, Any]]) -> list[float]:
    """One forward pass per response with all hidden states, sums of the last ones, CHES."""
    import torch

    found = []
    with torch.no_grad():
        for row in rows:
            sums = []
            for ids in row["responses"]:
                whole = torch.tensor([row["prompt_ids"] + ids])
                states = model(input_ids=whole, output_hidden_states=True).hidden_states[-1][0]
                sums.append(states[len(row["prompt_ids"]) - 1 : -1].sum(0))  # the end token is scored
            found.append(float(sums[0] @ sums[1] - sums[0] @ sums[0]))
    return found


def ours(reader: Any, rows: Sequence[dict[str, Any]], tokens: int) -> Iterator[dict[int, float]]:
    """The same by `prefopt diagnose`, without reading and writing files: for each of its batches, CHES by row."""
    from prefopt.diagnostics.items import batches_of, items_of
    from prefopt.diagnostics.measures import Similarities, pair_facts

    measure = Similarities(reader)
    for batch in batches_of(items_of(rows, 0, tokens=tokens), tokens=tokens):
        facts = pair_facts(batch)
        yield {fact["row"]: record["ches"] for fact, record in zip(facts, measure(batch), strict=True)}


@dataclass
class Times:
    """What one side took: on the clock, and of the processor, which does not count what other programs took."""

    wall: float = 0.0
    processor: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Adds what the block takes."""
        wall, processor = time.perf_counter(), time.process_time()
        yield
        self.wall += time.perf_counter() - wall
        self.processor += time.process_time() - processor


def in_turn(model: Any, reader: Any, rows: Sequence[dict[str, Any]], tokens: int) -> tuple[Times, Times, float]:
    """Both sides over all rows, prefopt's batches one by one, each followed by the published procedure on its rows.

    Gives what each took, and by how much of their size scores differ at most.
    """
    theirs, mine, apart = Times(), Times(), 0.0
    batches = ours(reader, rows, tokens)
    while True:
        with mine.running():
            found = next(batches, None)
        if found is None:
            return theirs, mine, apart
        with theirs.running():
            expected = published(model, [rows[row] for row in found])
        gaps = (abs(a - b) / max(abs(a), 1.0) for a, b in zip(expected, found.values(), strict=True))
        apart = max(apart, *gaps)


def speed(options: argparse.Namespace) -> None:
    """Alternate both sides and print pairs per second."""
    import torch

    from prefopt.diagnostics.items import items_of
    from prefopt.diagnostics.states import StateReader

    model, rows = load(options.model, options.data, options.pairs[0], spread=options.spread)
    reader = StateReader(model)
    in_turn(model, reader, rows[:2], options.batch_tokens)  # warm up, and let the reader settle on its layout
    print(f"{len(rows)} pairs, {torch.get_num_threads()} threads, float32, layout {reader.scorer.settled(model)}")
    whole = sum(len(row["prompt_ids"]) + len(ids) for row in rows for ids in row["responses"])
    items = items_of(rows, 0, tokens=options.batch_tokens)
    once = sum(item.cost - item.shared_beginning() * (len(item.responses) - 1) for item in items)
    print(f"tokens read: {whole:,} by the published procedure, {once:,} by prefopt, {whole / once:.2f} times fewer")
    repeats = [in_turn(model, reader, rows, options.batch_tokens) for _ in range(options.repeats)]
    for name, side in (("published", 0), ("prefopt", 1)):
        rates = sorted(len(rows) / found[side].wall for found in repeats)
        print(f"{name:15} {statistics.median(rates):6.2f} pairs/s (min {rates[0]:.2f}, max {rates[-1]:.2f})")
    for name in ("wall", "processor"):
        ratios = sorted(getattr(theirs, name) / getattr(mine, name) for theirs, mine, _ in repeats)
        print(f"{name + ' ratio':15} {statistics.median(ratios):6.2f} (min {ratios[0]:.2f}, max {ratios[-1]:.2f})")
    print(f"scores differ by at most {max(apart for *_, apart in repeats):.1e} of their size")


def memory(options: argparse.Namespace) -> None:
    """Peak resident memory of a whole run, for several numbers of pairs."""
    lines = [line for line in Path(options.data).read_text(encoding="utf-8").splitlines(keepends=True) if line.strip()]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for count in options.pairs:
            file = Path(folder) / f"{count}.jsonl"
            file.write_text("".join(unnamed(lines[k % len(lines)]) for k in range(count)), encoding="utf-8")
            words = ["--model", options.model, "--data", str(file), "--out", str(Path(folder) / f"out-{count}")]
            words += ["--batch-tokens", str(options.batch_tokens)]
            command = [sys.executable, __file__, "one", *words]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr[-2000:])
            found.append(float(done.stdout.split()[-1]))
            print(f"{count:7} pairs: peak {found[-1]:8.1f} MiB", flush=True)
    print(f"largest over smallest: {max(found) / min(found):.3f}")


def unnamed(line: str) -> str:
    """The record without an id, which would occur more than once."""
    record = json.loads(line)
    record.pop("id", None)
    return json.dumps(record) + "\n"


def one(words: list[str]) -> None:
    """A diagnosis, and what it took at most."""
    from prefopt.cli import main

    code = main(["diagnose", *words, "--json"])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2))
    raise SystemExit(code)


def main() -> None:
    """Command line."""
    if sys.argv[1:2] == ["one"]:
        one(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "memory"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pairs", type=int, nargs="+")
    parser.add_argument("--spread", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    options = parser.parse_args()
    options.pairs = options.pairs or ([64] if options.what == "speed" else [100, 10_000])
    (speed if options.what == "speed" else memory)(options)


if __name__ == "__main__":
    main()
