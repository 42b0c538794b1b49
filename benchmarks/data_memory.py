"""Peak memory of the data commands against the number of records.

    python benchmarks/data_memory.py [--commands inject,filter,...] [--records 100000 1000000]

Records are short word problems, no two alike, some 300 bytes each; every point is a fresh process, and what is printed
is the peak resident memory of that process, in MiB, with its processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COMMANDS: dict[str, list[str]] = {
    "inject": ["inject", "--mode", "step"],
    "convert": ["convert"],
    "filter": ["filter"],
    "label": ["label"],
    "split": ["split"],
    "stats": ["stats"],
    "dedupe": ["dedupe"],
    "dedupe near": ["dedupe", "--near", "0.8"],
    "lint": ["lint"],
    "pair": ["pair"],
    "negatives": ["negatives", "--by", "score"],
}
NO_FILE = ("stats", "lint")
SAMPLES = ("pair", "negatives")  # half as many problems, each with a right and a wrong sample


def records(command: str, count: int) -> Iterator[dict[str, Any]]:
    """Word problems in the shape that the command reads."""
    for place in range(count):
        number = place // 2 if command in SAMPLES else place
        first, second = 3 + number % 9973, 2 + number // 9973
        prompt = f"Crate {number} holds {first} red and {second} green marbles, twice over. How many marbles are that?"
        right = f"One filling is {first} + {second} = {first + second} marbles.\n"
        rest = "Two fillings are 2 * {0} = {1} marbles.\n#### {1}"
        good, bad = right + rest.format(first + second, 2 * (first + second)), right + rest.format(first, 2 * first)
        answer = str(2 * (first + second))
        if command in SAMPLES:
            sample = {"completion": bad, "label": False} if place % 2 else {"completion": good, "label": True}
            yield {"id": str(place), "prompt": prompt, **sample, "score": 0.5}
        elif command == "inject":
            yield {"id": str(number), "prompt": prompt, "solution": good, "answer": answer}
        elif command == "convert":
            yield {"question": prompt, "response_j": good, "response_k": bad}
        else:
            yield {"id": str(number), "prompt": prompt, "chosen": good, "rejected": bad, "answer": answer}


def measured(command: str, count: int) -> tuple[float, float, int]:
    """Peak MiB, seconds of the processor and size of the input in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "in.jsonl"
        with file.open("w") as lines:
            lines.writelines(json.dumps(record) + "\n" for record in records(command, count))
        out = [] if command in NO_FILE else ["--out", str(Path(folder) / "out.jsonl")]
        words = [sys.executable, "-m", "data_tools", *COMMANDS[command], str(file), *out, "--json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        _, status, used = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"{' '.join(words)}: exit status {os.waitstatus_to_exitcode(status)}")
        return used.ru_maxrss / 1024, used.ru_utime + used.ru_stime, file.stat().st_size


def main() -> None:
    """Print a line per command and number of records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", default=",".join(COMMANDS), help="commands, separated by commas")
    parser.add_argument("--records", type=int, nargs="+", default=[100_000, 1_000_000])
    options = parser.parse_args()
    print(f"{'command':12} {'records':>9} {'input, MB':>9} {'peak, MiB':>9} {'seconds':>8}")
    for command in options.commands.split(","):
        for count in options.records:
            peak, seconds, size = measured(command, count)
            print(f"{command:12} {count:9,} {size / 1e6:9.0f} {peak:9.1f} {seconds:8.0f}", flush=True)


if __name__ == "__main__":
    main()
