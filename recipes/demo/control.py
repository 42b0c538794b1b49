"""Does the quickstart learn from its labels? Train with the labels as given and with half of them swapped at random.

    python recipes/demo/control.py [--seeds 0 1 2] [--labels given flipped] [--work runs/control] [key=value ...]

Prints greedy accuracy on the held-out problems before and after, per seed. A seed decides the order of the pairs and
which labels are swapped. Further `key=value` settings go to the recipe.
"""

import argparse
import json
import logging
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import greedy

from data_tools.records import Record, read_records, write_records
from prefopt.demo import demo_model_path

log = logging.getLogger("control")

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes" / "quickstart.yaml"
DATA = ROOT / "recipes" / "data" / "tiny-math"
LABELS = ("given", "flipped")


@dataclass(frozen=True)
class Outcome:
    """Greedy accuracy on the held-out problems before and after one run, shares from 0 to 1."""

    labels: str
    seed: int
    before: float
    after: float

    @property
    def points(self) -> float:
        """The gain in percentage points."""
        return 100 * (self.after - self.before)


def flip_half(pairs: Sequence[Record], seed: int) -> list[Record]:
    """The pairs with chosen and rejected swapped in a random half of them: labels that say nothing."""
    swapped = set(random.Random(seed).sample(range(len(pairs)), len(pairs) // 2))
    return [
        {**pair, "chosen": pair["rejected"], "rejected": pair["chosen"]} if index in swapped else dict(pair)
        for index, pair in enumerate(pairs)
    ]


def run(labels: str, seed: int, work: Path, *, before: float, settings: Sequence[str] = ()) -> Outcome:
    """Train once by the quickstart recipe and measure the result."""
    pairs = list(read_records(DATA / "pairs.jsonl"))
    folder = work / f"{labels}-{seed}"
    data = work / f"{labels}-{seed}.jsonl"
    write_records(data, flip_half(pairs, seed) if labels == "flipped" else pairs)
    overrides = [f"data.train={data}", f"training.output_dir={folder}", f"training.seed={seed}", *settings]
    command = [sys.executable, "-m", "prefopt", "train", str(RECIPE), *overrides, "--overwrite"]
    subprocess.run(command, check=True, cwd=ROOT)
    return Outcome(labels, seed, before, greedy(folder, list(read_records(DATA / "heldout.jsonl"))).accuracy)


def run_all(
    work: Path, *, seeds: Sequence[int] = (0, 1, 2), labels: Sequence[str] = LABELS, settings: Sequence[str] = ()
) -> list[Outcome]:
    """All runs, one after the other."""
    heldout = list(read_records(DATA / "heldout.jsonl"))
    before = greedy(demo_model_path("demo:tiny-math"), heldout).accuracy
    outcomes = []
    for kind in labels:
        for seed in seeds:
            outcomes.append(run(kind, seed, work, before=before, settings=settings))
            log.info("%s", outcomes[-1])
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    """A Markdown table of the outcomes."""
    lines = ["| labels | seed | before | after | points |", "|---|---|---|---|---|"]
    lines += [f"| {o.labels} | {o.seed} | {o.before:.3f} | {o.after:.3f} | {o.points:+.1f} |" for o in outcomes]
    return "\n".join(lines)


def main() -> None:
    """Parse the command line, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", help="key=value settings of the recipe")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--labels", nargs="+", choices=LABELS, default=list(LABELS))
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "control")
    parser.add_argument("--json", action="store_true", help="one JSON object per run instead of a table")
    arguments = parser.parse_intermixed_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    work = arguments.work.resolve()
    outcomes = run_all(work, seeds=arguments.seeds, labels=arguments.labels, settings=arguments.settings)
    print("\n".join(json.dumps(vars(o)) for o in outcomes) if arguments.json else table(outcomes))


if __name__ == "__main__":
    main()
