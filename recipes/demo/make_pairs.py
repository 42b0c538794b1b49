"""Preference pairs from a model's own samples, labelled by the right answer.

    python recipes/demo/make_pairs.py demo:tiny-math PROBLEMS.jsonl OUT.jsonl [--pairs 480] [--samples 6] [--seed 0]

Of `--samples` solutions per problem at temperature 1, every wrong one is paired with the right one that shares the
longest beginning with it, so that a pair differs from where the two part. The same model, problems and seed give the
same pairs.
"""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import answers, is_right, load, model_folder

from data_tools.answers import final_answer
from data_tools.records import Record, read_records, write_records

log = logging.getLogger("make_pairs")

PAIRS = 480
PER_PROBLEM = 2
SAMPLES = 6


@dataclass(frozen=True)
class Choice:
    """How pairs are made: so many samples a problem, at most so many pairs a problem, and so many pairs in all."""

    pairs: int = PAIRS
    samples: int = SAMPLES
    per_problem: int = PER_PROBLEM
    seed: int = 0


def make_pairs(folder: str | Path, problems: Sequence[Record], choice: Choice) -> list[Record]:
    """Pairs with the columns id, prompt, chosen, rejected, answer, in the order of the problems."""
    model, tokenizer = load(folder)
    prompts = [row["prompt"] for row in problems]
    texts = answers(model, tokenizer, prompts, samples=choice.samples, temperature=1.0, seed=choice.seed)
    pairs = [
        pair
        for row, solutions in zip(problems, texts, strict=True)
        for pair in pairs_of(row, solutions, limit=choice.per_problem)
    ]
    if len(pairs) < choice.pairs:
        log.warning("only %d pairs of %d: give more problems or samples", len(pairs), choice.pairs)
    return pairs[: choice.pairs]


def pairs_of(row: Record, solutions: Sequence[str], *, limit: int) -> list[Record]:
    """At most `limit` pairs of one problem: its first different wrong solutions, each with the nearest right one.

    Solutions without a final answer (cut off, malformed) are not used.
    """
    finished = list(dict.fromkeys(text for text in solutions if final_answer(text) is not None))
    right = [text for text in finished if is_right(text, row["answer"])]
    wrong = [text for text in finished if not is_right(text, row["answer"])]
    if not right:
        return []
    return [_pair(row, nearest(text, right), text, number) for number, text in enumerate(wrong[:limit])]


ROUNDS = ((8, 1.0), (8, 1.0), (8, 1.3), (32, 1.3), (64, 1.5), (64, 1.8))
"""Samples and temperature of each try to find a wrong solution; later ones only for problems that had none."""


def with_rejected(folder: str | Path, problems: Sequence[Record], *, seed: int) -> list[Record]:
    """The rows with a wrong solution of the model's own beside the right one, so that pair losses can be evaluated.

    Raises: `RuntimeError` when the model gets a problem right in every sample.
    """
    model, tokenizer = load(folder)
    found: dict[str, str] = {}
    for number, (samples, temperature) in enumerate(ROUNDS):
        missing = [row for row in problems if row["id"] not in found]
        if not missing:
            break
        prompts = [row["prompt"] for row in missing]
        texts = answers(model, tokenizer, prompts, samples=samples, temperature=temperature, seed=seed + number)
        for row, solutions in zip(missing, texts, strict=True):
            finished = [text for text in solutions if final_answer(text) is not None]
            wrong = next((text for text in finished if not is_right(text, row["answer"])), None)
            if wrong is not None:
                found[row["id"]] = wrong
    if len(found) < len(problems):
        raise RuntimeError(f"no wrong solution of {len(problems) - len(found)} problems was found")
    return [
        {"id": r["id"], "prompt": r["prompt"], "chosen": r["chosen"], "rejected": found[r["id"]], "answer": r["answer"]}
        for r in problems
    ]


def nearest(text: str, candidates: Sequence[str]) -> str:
    """The candidate that shares the longest beginning with `text`; the first of several."""
    return max(candidates, key=lambda candidate: _shared(candidate, text))


def _shared(a: str, b: str) -> int:
    """Number of characters at the beginning that two texts have in common."""
    return next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _pair(row: Record, chosen: str, rejected: str, number: int) -> dict[str, Any]:
    return {
        "id": f"{row['id']}-{number}",
        "prompt": row["prompt"],
        "chosen": chosen,
        "rejected": rejected,
        "answer": row["answer"],
    }


def main() -> None:
    """Parse the command line and write the pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder, or demo:NAME")
    parser.add_argument("problems", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--per-problem", type=int, default=PER_PROBLEM)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    choice = Choice(arguments.pairs, arguments.samples, arguments.per_problem, arguments.seed)
    pairs = make_pairs(model_folder(arguments.model), list(read_records(arguments.problems)), choice)
    write_records(arguments.out, pairs)
    log.info("%s: %d pairs from %d problems", arguments.out, len(pairs), len({pair["prompt"] for pair in pairs}))


if __name__ == "__main__":
    main()
