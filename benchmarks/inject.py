"""Errors put into solutions of word problems: how many take one, of which kinds, how fast, and whether all are wrong.

    python benchmarks/inject.py FILE [--rows N] [--repeats 3]

FILE has one record a line with prompt, solution (or completion) and answer. For every mode it prints the share of
records with a verified pair, the kinds, and what an independent reader of equations (tests/data_tools/independent.py)
finds wrong with the rows. Speed is counted in seconds of the processor of this process, records parsed and rows made in
memory; a fixed loop beside it says how fast the processor was at the time. At the end a linear classifier
on the looks of the texts tries to tell right from wrong: 50 % is a coin.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from data_tools.command import RunInfo
from data_tools.commands.inject import InjectOptions, inject
from data_tools.errors import RecordError
from data_tools.fields import text_of
from data_tools.records import record_id, scan_records
from data_tools.run import Output, Reject, Row
from tests.data_tools.independent import faults

Pair = dict[str, Any]
_NUMBER = re.compile(r"\d[\d,]*\.?\d*")


def read(path: Path, limit: int | None) -> list[Row]:
    rows = []
    for number, record in scan_records(path):
        if len(rows) == limit:
            break
        if isinstance(record, dict):
            rows.append(Row(record, record_id(record), path.name, number))
    return rows


def made(rows: Sequence[Row], mode: str) -> Iterator[tuple[Output, Row]]:
    """The outputs with the records they come from."""
    function = inject(InjectOptions(mode=mode), RunInfo(0, Path("benchmark")))
    for row in rows:
        try:
            yield from ((output, row) for output in function(row))
        except RecordError as error:
            yield Reject(error.reason), row


def sorted_out(outputs: Iterable[tuple[Output, Row]]) -> tuple[list[tuple[Pair, Row]], Counter[str]]:
    """The pairs, and the reasons of the records without one."""
    pairs: list[tuple[Pair, Row]] = []
    reasons: Counter[str] = Counter()
    for output, row in outputs:
        if isinstance(output, Reject):
            reasons[output.reason] += 1
        elif isinstance(output, dict):
            pairs.append((output, row))
    return pairs, reasons


def loop_seconds() -> float:
    """A loop of ten million additions, as a yardstick of the processor."""
    begin = time.process_time()
    total = 0
    for number in range(10_000_000):
        total += number
    return time.process_time() - begin


def speed(rows: Sequence[Row], mode: str, repeats: int) -> str:
    rates = []
    gc.collect()
    gc.freeze()  # the input is held here, and only here
    for _ in range(repeats):
        before = loop_seconds()
        begin = time.process_time()
        for _ in made(rows, mode):
            pass
        rates.append((len(rows) / (time.process_time() - begin), (before + loop_seconds()) / 2))
    return ", ".join(f"{rate:,.0f} (loop {loop:.2f} s)" for rate, loop in sorted(rates))


# ------------------------------------------------------------------------------------------- looks of a text


def looks(text: str) -> list[float]:
    """What can be counted without reading."""
    numbers = _NUMBER.findall(text) or ["0"]
    values = [float(number.replace(",", "").rstrip(".") or 0) for number in numbers]
    last = numbers[-1].replace(",", "").rstrip(".")
    signs = [float(text.count(sign)) for sign in ("-", "+", "*", "/", "x", ".", ",", "$", "%", "= -", "(")]
    return [
        float(len(text)),
        float(len(text.split())),
        float(sum(character.isdigit() for character in text)),
        float(len(numbers)),
        *signs,
        float(len(last)),
        float(last.endswith("0")),
        float(last.endswith("5")),
        float("." in last),
        float(np.log1p(values[-1])),
        float(np.log1p(max(values))),
        float(sum(number.replace(",", "").endswith("0") for number in numbers)),
        len(set(numbers)) / len(numbers),
        float(bool(re.search(r"(?<![\d.])0\d", text))),
    ]


def classified(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Accuracy on held-out pairs: one text at a time, and of the two sides of a pair which is the wrong one."""
    right = np.array([looks(pair["chosen"]) for pair in pairs])
    wrong = np.array([looks(pair["rejected"]) for pair in pairs])
    both = np.vstack([right, wrong])
    right, wrong = ((side - both.mean(0)) / (both.std(0) + 1e-9) for side in (right, wrong))
    order = np.random.default_rng(0).permutation(len(pairs))
    train, test = order[: len(pairs) // 2], order[len(pairs) // 2 :]
    weights, bias = fitted(np.vstack([right[train], wrong[train]]), np.r_[np.zeros(len(train)), np.ones(len(train))])
    single = ((right[test] @ weights + bias < 0).mean() + (wrong[test] @ weights + bias > 0).mean()) / 2
    gap = wrong - right
    flip = np.random.default_rng(1).choice([-1.0, 1.0], len(pairs))
    weights, _ = fitted(gap[train] * flip[train, None], (flip[train] > 0).astype(float))
    score = gap[test] @ weights
    return float(single), float((score > 0).mean() + 0.5 * (score == 0).mean())


def fitted(x: Any, y: Any, ridge: float = 1e-3) -> tuple[Any, float]:
    """Logistic regression by Newton's method."""
    design = np.hstack([x, np.ones((len(x), 1))])
    weights = np.zeros(design.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        curvature = (design * (p * (1 - p))[:, None]).T @ design / len(y) + ridge * np.eye(len(weights))
        weights -= np.linalg.solve(curvature, design.T @ (p - y) / len(y) + ridge * weights)
    return weights[:-1], float(weights[-1])


def shares(counts: Counter[str], total: int) -> str:
    return ", ".join(f"{name} {100 * count / total:.1f} %" for name, count in counts.most_common())


def check(pairs: Iterable[tuple[Pair, Row]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for pair, row in pairs:
        solution = text_of(row.record, ("solution", "completion"), row.where)
        found.update(faults(pair, solution) or ["proven wrong, right side untouched"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.file is None:
        print("Give a file: one record a line with prompt, solution and answer.")
        return
    rows = read(arguments.file, arguments.rows)
    print(f"{len(rows)} records")
    for mode in ("step", "suffix", "full"):
        pairs, reasons = sorted_out(made(rows, mode))
        sources = {row.line for _, row in pairs}
        share = 100 * len(sources) / len(rows)
        print(f"\n{mode}: {len(sources)} of {len(rows)} records have a verified pair, {share:.1f} %")
        print(f"  kinds: {shares(Counter(pair['error_kind'] for pair, _ in pairs), len(pairs))}")
        print(f"  others: {json.dumps(dict(reasons))}")
        print(f"  independent reader: {json.dumps(dict(check(pairs)))}")
        print(f"  records per second of one core: {speed(rows, mode, arguments.repeats)}")
        single, paired = classified([pair for pair, _ in pairs])
        print(f"  classifier on looks: {100 * single:.1f} % of single texts, {100 * paired:.1f} % of pairs")


if __name__ == "__main__":
    main()
