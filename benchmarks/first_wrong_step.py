"""The first wrong step by equation check, against steps that people marked.

    python benchmarks/first_wrong_step.py FILE...

FILE has one chain a line: `completions`, its steps, and `labels`, true for each step up to the first wrong one (later
steps are cut). Precision: of the chains in which a false equation was found, those whose first wrong step it is.
Coverage:
of the chains in which people marked a wrong step, those in which one was found, rightly or not.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from data_tools.records import read_records
from data_tools.steps import FirstWrong, Step, Steps, first_wrong_step


def found_in(chain: dict[str, Any]) -> FirstWrong:
    text, steps = "", []
    for body in chain["completions"]:
        steps.append(Step(len(text), len(text), len(text) + len(body)))
        text += body + "\n"
    return first_wrong_step(Steps(text, tuple(steps)))


def compared(chain: dict[str, Any]) -> str:
    marked = next((number for number, right in enumerate(chain["labels"], start=1) if not right), None)
    found = found_in(chain)
    if found.step is None:
        return "none found, one marked" if marked else "none found, none marked"
    if marked is None:
        return "found, none marked"
    return "found at the mark" if found.step == marked else "found elsewhere"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*")
    arguments = parser.parse_args()
    if not arguments.files:
        print("Give files: one chain a line with completions and labels.")
    for file in arguments.files:
        chains = list(read_records(file))
        counts = Counter(compared(chain) for chain in chains)
        checked = sum(found_in(chain).checked > 0 for chain in chains)
        found = sum(count for name, count in counts.items() if name.startswith("found"))
        marked = counts["none found, one marked"] + counts["found at the mark"] + counts["found elsewhere"]
        print(f"{file.name}: {len(chains)} chains, {checked} with an equation that could be decided, {marked} marked")
        for name, count in counts.most_common():
            print(f"  {name}: {count}")
        if found and marked:
            right = counts["found at the mark"]
            where_marked = right + counts["found elsewhere"]
            print(f"  precision {100 * right / found:.1f} % ({right}/{found}); where people marked a step, ", end="")
            print(f"{100 * right / where_marked:.1f} % ({right}/{where_marked})")
            print(f"  coverage {100 * where_marked / marked:.1f} % ({where_marked}/{marked})")


if __name__ == "__main__":
    main()
