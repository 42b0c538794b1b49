"""Does a small model get better by its own step pairs? Step-DPO, SCDPO and RISE from problems to held-out accuracy.

`rise_flipped` is the control of RISE: the same rows with right and wrong exchanged in the edited ones, the ordinary
pairs as they are. What RISE gains beyond it, it owes to the edited steps.

    python recipes/studies/step_loop/loop.py [--methods step_dpo scdpo rise rise_flipped] [--seeds 0] [--problems 200]
        [--work runs/step-loop] [--out RESULTS.json] [key=value ...]

For each seed: new problems, none of them held out; pairs from the samples of `demo:tiny-math`, located, corrected or
led astray by that model alone; training by the recipe of the same name; greedy accuracy on the 600 held-out problems
before and after. A seed decides the problems, the samples and the order of the pairs. All methods of a seed share one
journal of answers, so that a second run samples nothing again. Further `key=value` settings go to the recipes.
"""

import argparse
import json
import logging
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from data_tools.records import Record, read_records, write_records

log = logging.getLogger("loop")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
HELDOUT = ROOT / "recipes" / "data" / "tiny-math" / "heldout.jsonl"
TUNING = ROOT / "recipes" / "data" / "tiny-math" / "tuning.jsonl"
ACCURACY = "eval_heldout_answer_accuracy"

SAMPLED = ["--model", "demo:tiny-math", "--batch-size", "128", "--window", "128", "--max-tokens", "128"]
DRAWN = "--samples 4 --temperature 1.0 --top-p 1.0"
COMMANDS = {
    "step_dpo": f"step-pairs {DRAWN} --locate equations --locate rollouts --rollouts 4 --corrections 6 --pairs 2",
    "scdpo": f"scdpo {DRAWN} --rounds 1 --negatives 2 --tries 3",
    "rise": f"rise {DRAWN} --editor rule --edits 1",
}
COMMANDS["rise_flipped"] = COMMANDS["rise"]
"""How each method makes its pairs. Rules edit the steps for RISE: the model understands no instructions."""


@dataclass(frozen=True)
class Outcome:
    """One method and seed: how many pairs, greedy accuracy on the held-out problems (shares), minutes of both parts."""

    method: str
    seed: int
    problems: int
    pairs: int
    before: float
    after: float
    sampling_minutes: float
    training_minutes: float

    @property
    def points(self) -> float:
        """The gain in percentage points."""
        return 100 * (self.after - self.before)


def run(method: str, seed: int, work: Path, *, problems: int, settings: Sequence[str] = ()) -> Outcome:
    """Make pairs and train on them."""
    work.mkdir(parents=True, exist_ok=True)
    source, pairs = work / f"problems-{seed}.jsonl", work / f"{method}-{seed}.jsonl"
    if not source.exists():
        number = ["--count", str(problems), "--seed", str(2000 + seed)]
        prefopt("data", "problems", source, *number, "--exclude", HELDOUT, "--exclude", TUNING)
    command, *options = COMMANDS[method].split()
    # answers come from the journal where it has them, so writing the pairs again costs no sampling
    journal = ["--journal", work / f"answers-{seed}.jsonl", "--overwrite"]
    sampling = prefopt(
        "data", command, source, "--out", pairs, *SAMPLED, "--prefill", "Step 1:", *options, *journal, "--seed", seed
    )
    if method == "rise_flipped":
        write_records(pairs, [flipped(row) for row in read_records(pairs)])
    folder = work / f"{method}-{seed}"
    changes = [f"data.train={pairs}", f"training.output_dir={folder}", f"training.seed={seed}", *settings]
    recipe = method.removesuffix("_flipped")
    training = prefopt("train", HERE / f"{recipe}.yaml", *changes, "--overwrite")
    before, after = accuracies(folder / "metrics.jsonl")
    rows = sum(1 for _ in pairs.open(encoding="utf-8"))
    return Outcome(method, seed, problems, rows, before, after, round(sampling / 60, 1), round(training / 60, 1))


def flipped(row: Record) -> Record:
    """An edited pair with its sides exchanged; any other row as it is."""
    if row["pair_kind"] != "edit":
        return row
    other = {"chosen": "rejected", "rejected": "chosen"}
    return {re.sub("chosen|rejected", lambda found: other[found[0]], name): value for name, value in row.items()}


def prefopt(*arguments: object) -> float:
    """Run a command of prefopt and return the seconds that it took."""
    words = [str(argument) for argument in arguments]
    log.info("prefopt %s", " ".join(words))
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "prefopt", *words], check=True, cwd=ROOT)
    return time.monotonic() - began


def accuracies(metrics: Path) -> tuple[float, float]:
    """The first and the last held-out accuracy of a run."""
    lines = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
    found = [line[ACCURACY] for line in lines if ACCURACY in line]
    if len(found) < 2:
        raise RuntimeError(f"{metrics}: the accuracy was measured {len(found)} times, not before and after training")
    return found[0], found[-1]


def table(outcomes: Sequence[Outcome]) -> str:
    """A Markdown table of the outcomes."""
    lines = ["| method | seed | pairs | before | after | points | minutes |", "|---|---|---|---|---|---|---|"]
    for o in outcomes:
        minutes = f"{o.sampling_minutes} + {o.training_minutes}"
        lines.append(
            f"| {o.method} | {o.seed} | {o.pairs} | {o.before:.1%} | {o.after:.1%} | {o.points:+.1f} | {minutes} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="key=value")
    parser.add_argument("--methods", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "step-loop")
    parser.add_argument("--out", type=Path, help="write the outcomes here as well, as JSON")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    work = arguments.work.resolve()
    outcomes = []
    for seed in arguments.seeds:
        for method in arguments.methods:
            outcomes.append(run(method, seed, work, problems=arguments.problems, settings=arguments.settings))
            if arguments.out:
                content = json.dumps([asdict(outcome) for outcome in outcomes], indent=2)
                arguments.out.write_text(content + "\n", encoding="utf-8")
    print(table(outcomes))


if __name__ == "__main__":
    main()
