"""Rebuild the demonstration models and the quickstart data. `make tiny-math` runs it; under 45 minutes on two cores.

    python recipes/demo/build.py [--work runs/tiny-math] [--stages data start base flawed pairs report]

Stages: `data` writes the problem sets, `start` the untrained model, `base` and `flawed` train and choose a checkpoint
by its accuracy on the tuning set, `pairs` samples the quickstart pairs, `report` measures both models on the held-out
set, which plays no part before. A stage uses what the stages before it left in the work folder and in the package.
"""

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from make_pairs import Choice, make_pairs, with_rejected
from measure import Greedy, Sampled, greedy, sampled
from splits import HELDOUT, TUNING, write_splits
from start_model import save_start

from data_tools.records import read_records, write_records

log = logging.getLogger("build")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "prefopt" / "demo"
SHIPPED = ROOT / "recipes" / "data" / "tiny-math"
SAMPLES = 6
MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@dataclass(frozen=True)
class Goal:
    """Where the greedy accuracy of a checkpoint on the tuning set must lie, and the value to be nearest to."""

    low: float
    high: float
    aim: float


BASE_GOAL = Goal(low=0.80, high=0.90, aim=0.85)
FLAWED_GOAL = Goal(low=0.50, high=0.60, aim=0.55)
LEAST_TRUE_EQUATIONS = 0.36
LEAST_MIXED = 0.5


@dataclass(frozen=True)
class Candidate:
    """A checkpoint with what it does on the tuning set."""

    checkpoint: str
    greedy: Greedy
    sampled: Sampled | None = None


def build_data(work: Path) -> None:
    """Write all sets to the work folder."""
    write_splits(work / "data")


def build_start(work: Path) -> None:
    """Write the untrained model."""
    save_start(work / "start")


def build_base(work: Path) -> None:
    """Train the honest model and ship the checkpoint with the accuracy nearest to the goal."""
    train(HERE / "base.yaml", work, "base", start=work / "start")
    tuning = _rows(work, TUNING.name)
    found = [Candidate(folder.name, greedy(folder, tuning)) for folder in _last(checkpoints(work / "base"), 8)]
    best = choose(found, BASE_GOAL)
    _record(work, "base", {"chosen": best.checkpoint, "candidates": [asdict(candidate) for candidate in found]})
    ship(work / "base" / best.checkpoint, work / "start", PACKAGE / "tiny-math-base")


def build_flawed(work: Path) -> None:
    """Fine-tune on flawed solutions and ship the checkpoint nearest to the goal with mistakes of the wanted kinds."""
    train(HERE / "flawed.yaml", work, "flawed", start=PACKAGE / "tiny-math-base")
    tuning = _rows(work, TUNING.name)
    found = []
    for folder in checkpoints(work / "flawed"):
        measured = greedy(folder, tuning)
        inside = FLAWED_GOAL.low <= measured.accuracy <= FLAWED_GOAL.high
        samples = sampled(folder, tuning, samples=SAMPLES) if inside else None
        found.append(Candidate(folder.name, measured, samples))
    best = choose([candidate for candidate in found if makes_wanted_mistakes(candidate)], FLAWED_GOAL)
    _record(work, "flawed", {"chosen": best.checkpoint, "candidates": [asdict(candidate) for candidate in found]})
    ship(work / "flawed" / best.checkpoint, work / "start", PACKAGE / "tiny-math")


def build_pairs(work: Path) -> None:
    """Sample the quickstart pairs from the flawed model, and a wrong solution for each problem that measures."""
    SHIPPED.mkdir(parents=True, exist_ok=True)
    pairs = make_pairs(PACKAGE / "tiny-math", _rows(work, "pairs"), Choice())
    log.info("pairs.jsonl: %d pairs", write_records(SHIPPED / "pairs.jsonl", pairs))
    for split in (HELDOUT, TUNING):
        rows = with_rejected(PACKAGE / "tiny-math", _rows(work, split.name), seed=split.seed)
        log.info("%s.jsonl: %d rows", split.name, write_records(SHIPPED / f"{split.name}.jsonl", rows))


def build_report(work: Path) -> None:
    """Measure the shipped models on the held-out set; the numbers go to results.json beside this file."""
    rows = _rows(work, HELDOUT.name)
    results = {}
    for name in ("tiny-math-base", "tiny-math"):
        folder = PACKAGE / name
        results[name] = {
            "greedy": asdict(greedy(folder, rows)),
            "sampled": asdict(sampled(folder, rows, samples=SAMPLES)),
        }
    text = json.dumps(results, indent=2) + "\n"
    (HERE / "results.json").write_text(text, encoding="utf-8")
    log.info("%s", text)


STAGES: dict[str, Callable[[Path], None]] = {
    "data": build_data,
    "start": build_start,
    "base": build_base,
    "flawed": build_flawed,
    "pairs": build_pairs,
    "report": build_report,
}


def train(recipe: Path, work: Path, name: str, *, start: Path) -> None:
    """Run `prefopt train` on a recipe of this folder, with the paths of this build."""
    overrides = [
        f"model.name_or_path={start}",
        f"data.train={work / 'data' / f'{name}.jsonl'}",
        f"training.output_dir={work / name}",
    ]
    command = [sys.executable, "-m", "prefopt", "train", str(recipe), *overrides, "--overwrite"]
    log.info("%s", " ".join(command))
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": str(os.cpu_count() or 1)})


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run in the order of their steps."""
    return sorted(run.glob("checkpoint-*"), key=lambda folder: int(folder.name.rpartition("-")[2]))


def choose(candidates: Sequence[Candidate], goal: Goal) -> Candidate:
    """The candidate inside the window and nearest to the aim; the later of two equals.

    Raises: SystemExit with all accuracies if there is none: then the length or the rate of the run has to change.
    """
    inside = [candidate for candidate in candidates if goal.low <= candidate.greedy.accuracy <= goal.high]
    if not inside:
        seen = ", ".join(f"{candidate.checkpoint} {candidate.greedy.accuracy:.3f}" for candidate in candidates)
        raise SystemExit(f"no checkpoint between {goal.low} and {goal.high} on the tuning set: {seen or 'none fits'}")
    return min(reversed(inside), key=lambda candidate: abs(candidate.greedy.accuracy - goal.aim))


def makes_wanted_mistakes(candidate: Candidate) -> bool:
    """Whether most problems get right and wrong samples, and enough wrong ones have true equations."""
    measured = candidate.sampled
    return (
        measured is not None
        and measured.mixed >= LEAST_MIXED
        and measured.wrong_with_true_equations >= LEAST_TRUE_EQUATIONS
    )


def ship(checkpoint: Path, start: Path, out: Path) -> None:
    """Copy weights from a checkpoint and the tokenizer from the start model, nothing else."""
    out.mkdir(parents=True, exist_ok=True)
    for folder, names in ((checkpoint, MODEL_FILES), (start, TOKENIZER_FILES)):
        for name in names:
            shutil.copyfile(folder / name, out / name)
    log.info("%s from %s", out.relative_to(ROOT), checkpoint.name)


def _rows(work: Path, name: str) -> list[dict[str, Any]]:
    return list(read_records(work / "data" / f"{name}.jsonl"))


def _last(folders: Sequence[Path], number: int) -> Sequence[Path]:
    """The late checkpoints, when the accuracy has levelled off: the early ones cost more to measure than they tell."""
    return folders[-number:]


def _record(work: Path, name: str, report: dict[str, Any]) -> None:
    (work / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Parse the command line and run the stages in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "tiny-math")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    work = arguments.work.resolve()
    for name, stage in STAGES.items():
        if name in arguments.stages:
            begin = time.monotonic()
            stage(work)
            log.info("stage %s: %.0f s", name, time.monotonic() - begin)


if __name__ == "__main__":
    main()
