"""The weights of `data_tools/inject/balance.py`: what gives the errors of each kind away, measured and evened out.

    python benchmarks/inject_balance.py FILE [--rows N] [--rounds 4]

FILE is as for `benchmarks/inject.py`; its first half is used. For every kind pairs are made in every mode, a
logistic regression without a constant is fitted to the looks of their edits, and what it found is added to the weights
that thin the next round out, until a round finds next to nothing. Prints the table as Python.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.inject import read
from data_tools.commands.inject import solution_item
from data_tools.errors import RecordError
from data_tools.inject import KINDS, Mode, RuleInjector, SolutionItem, row_random
from data_tools.inject.balance import LOOKS, Balance, Gap, Proposal, gap

FEWEST = 15
"""Pairs from which weights are fitted; of a rarer kind nothing can be said."""


@dataclass(frozen=True)
class Watched(Balance):
    """Remembers the looks of the last edit that was kept."""

    last: list[Gap] = field(default_factory=list)

    def keeps(self, mode: str, kind: str, proposal: Proposal, rng: random.Random) -> bool:
        kept = super().keeps(mode, kind, proposal, rng)
        if kept:
            self.last[:] = [gap(proposal)]
        return kept


def gaps(items: Sequence[SolutionItem], mode: Mode, kind: str, weights: tuple[float, ...]) -> Any:
    """The looks of one pair of each solution that takes the kind."""
    watched = Watched({mode: {kind: weights}})
    injector = RuleInjector(mode=mode, kinds=(kind,), balance=watched)
    found = [watched.last[0] for item in items if injector.inject(item, row_random(0, item.id, "balance"))]
    return np.array(found).reshape(-1, len(LOOKS))


def odds(gaps: Any, ridge: float = 3.0) -> Any:
    """The w that maximises sum log sigmoid(w.g) - ridge/2 |w|^2, by Newton's method."""
    weights = np.zeros(gaps.shape[1])
    for _ in range(30):
        away = 1 / (1 + np.exp(np.clip(gaps @ weights, -30, 30)))
        curvature = (gaps * (away * (1 - away))[:, None]).T @ gaps + ridge * np.eye(len(weights))
        weights += np.linalg.solve(curvature, gaps.T @ away - ridge * weights)
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--kind", nargs="*", default=[k for k in KINDS if not k.startswith(("dropped", "extra"))])
    arguments = parser.parse_args()
    rows = read(arguments.file, arguments.rows)
    items = []
    for row in rows[: len(rows) // 2]:
        try:
            items.append(solution_item(row, "auto")[0])
        except RecordError:
            continue
    print("WEIGHTS: Mapping[str, Mapping[str, tuple[float, ...]]] = {")
    for mode in get_args(Mode):
        print(f'    "{mode}": {{')
        for kind in arguments.kind:
            weights, pairs = fitted(items, mode, kind, arguments.rounds)
            if pairs >= FEWEST:
                print(f'        "{kind}": ({", ".join(f"{weight:.2f}" for weight in weights)}),', flush=True)
        print("    },")
    print("}")


def fitted(items: Sequence[SolutionItem], mode: Mode, kind: str, rounds: int) -> tuple[Any, int]:
    """The weights of a kind, and how many pairs there were in the last round."""
    total, pairs = np.zeros(len(LOOKS)), 0
    for _ in range(rounds):
        found = gaps(items, mode, kind, tuple(total))
        step, pairs = odds(found), len(found)
        total += step
        print(f"# {mode} {kind}: {pairs} pairs, largest step {abs(step).max():.2f}", file=sys.stderr, flush=True)
    return total, pairs


if __name__ == "__main__":
    main()
