"""The problem sets of the demonstration models: fixed by seed, no prompt in two of them.

    python recipes/demo/splits.py WORK_FOLDER

Writes WORK_FOLDER/data/*.jsonl. The held-out and tuning sets also ship in `recipes/data/tiny-math`.
"""

import argparse
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from data_tools.problems import Flaw, Problem, make_problems
from data_tools.records import Record, write_records

log = logging.getLogger("splits")


@dataclass(frozen=True)
class Split:
    """One set: its seed, its size, and how often its solutions are flawed."""

    name: str
    seed: int
    size: int
    flaw: float = 0.0


HELDOUT = Split("heldout", seed=1001, size=600)
TUNING = Split("tuning", seed=1002, size=400)
PAIRS = Split("pairs", seed=1003, size=600)
BASE = Split("base", seed=1004, size=104_000)
FLAWED = Split("flawed", seed=1005, size=6_400, flaw=0.65)
SPLITS = (HELDOUT, TUNING, PAIRS, BASE, FLAWED)
"""In the order of their making: each excludes the prompts of those before it."""


def make_splits() -> dict[str, list[Problem]]:
    """All sets by name. Prompts of an earlier set do not occur in a later one."""
    made: dict[str, list[Problem]] = {}
    for split in SPLITS:
        taken = [problem.prompt for problems in made.values() for problem in problems]
        flaw = Flaw(split.flaw) if split.flaw else None
        made[split.name] = make_problems(split.size, seed=split.seed, flaw=flaw, exclude=taken)
    return made


def evaluation_rows(problems: Iterable[Problem]) -> list[Record]:
    """Rows for measuring: id, prompt, chosen (the right solution), answer."""
    return [{"id": p.id, "prompt": p.prompt, "chosen": p.solution, "answer": p.answer} for p in problems]


def training_rows(problems: Iterable[Problem]) -> list[Record]:
    """Rows for the nll loss: id, prompt, completion."""
    return [{"id": p.id, "prompt": p.prompt, "completion": p.solution} for p in problems]


def write_splits(folder: Path) -> None:
    """Write every set to `folder`/NAME.jsonl."""
    for name, problems in make_splits().items():
        rows = training_rows(problems) if name in (BASE.name, FLAWED.name) else evaluation_rows(problems)
        log.info("%s.jsonl: %d problems", name, write_records(folder / f"{name}.jsonl", rows))


def main() -> None:
    """Parse the command line and write the sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    write_splits(parser.parse_args().work / "data")


if __name__ == "__main__":
    main()
