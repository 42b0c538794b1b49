"""Small data files for the losses that read more than a pair, made from the demonstration pairs and models.

    python recipes/data/make_loss_data.py [FILE ...] [--out recipes/data/tiny-math]

FILE is a name of `MAKERS`, for instance `steps`; without one all are made. The same models and versions give the same
files. What the columns are, and are not:

- `scored`: `score_chosen`, `score_rejected`, between 0 and 10: five points for the right final answer, five times the
  share of the equations that are true. A rule, no reward model; it does not see whether an equation belongs there.
- `unpaired`: `completion` with `label`: whether its final answer is right. One response per pair, so a prompt may stand
  there twice.
- `steps`: character spans of the steps, the number of the first wrong step (from 1), and step rewards: 0.9 for a step
  that reaches the number which the same step of the right solution reaches, 0.1 from the first that does not. A rule
  on numbers; a trained process reward model would grade, and would know other ways to the answer.
- `weighted`: weight 2.5 on both solutions from the first wrong step on, 1 before it. A grader would say how much worse
  each step is.
- `step_pairs`: the first wrong step of a solution and the right one in its place, behind the right steps before it.
- `rise_pairs`: step pairs (`-step-` in the id) and whole pairs of other rows, in turns. The method injects the error
  with a language model; here it is the model's own.
- `token_scores`: of each response token, softmax((1 + b) z+ - b z-) at that token with b = 1, where z+ are the logits
  of `demo:tiny-math` and z- those of its base model. The method wants one model tuned on right and one on wrong
  solutions; the base model only stands in for the second. The ids are there to be compared with those of training.
- `edits`: `chosen` is the rejected solution with right steps from the first wrong one on; `diff_spans_*` are the words
  that differ. The method has a language model rewrite the solution.
- `deviations`: each response's mean cosine distance, in word counts, to the other samples of its prompt, scaled to 0..1
  within the prompt and divided by the prompt's mean. The method measures with a text embedding.
- `negatives`: several wrong samples beside a right one.
- `dispreferred`: the right samples of one prompt with reward 1 and one wrong sample with reward 0. The method has
  people mark what must not be said, and samples the rest from the policy.
- `groups`: samples of one prompt, rewards 1 and 0 by the final answer, with steps and step rewards as in `steps`.
"""

from __future__ import annotations

import argparse
import difflib
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from data_tools.answers import final_answer, same_answer
from data_tools.records import Record, read_records, write_records
from prefopt.data import DataOptions, Rejection, encode_row
from prefopt.demo import demo_model_path
from prefopt.losses.cdpo import contrast_scores
from prefopt.train.generate import generate

log = logging.getLogger("make_loss_data")

FOLDER = Path(__file__).parent / "tiny-math"
SAMPLES, TEMPERATURE, SEED = 6, 1.0, 0
SEVERE = 2.5
"""Weight of what is wrong, and of what is right in its place."""

RIGHT, WRONG = 0.9, 0.1
"""Rewards of a step: inside (0, 1), as probabilities are."""

_EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")
_STEP = re.compile(r"(?m)^Step (\d+):")
_OPTIONS = DataOptions(template="always", max_length=256)


@cache
def pairs() -> tuple[Record, ...]:
    """The demonstration pairs."""
    return tuple(read_records(FOLDER / "pairs.jsonl"))


def scored() -> Iterator[Record]:
    """Pairs with a score for each response; those without a gap are left out."""
    for row in pairs()[:320]:
        scores = {f"score_{side}": _score(row[side], row["answer"]) for side in ("chosen", "rejected")}
        if scores["score_chosen"] > scores["score_rejected"]:
            yield row | scores


def _score(text: str, answer: str) -> float:
    found = _EQUATION.findall(text)
    true = sum(_is_true(*equation) for equation in found) / len(found) if found else 0.0
    return round(5.0 * same_answer(final_answer(text), answer) + 5.0 * true, 2)


def _is_true(left: str, operation: str, right: str, result: str) -> bool:
    a, b, c = int(left), int(right), int(result)
    return {"+": a + b == c, "-": a - b == c, "*": a * b == c, "/": b != 0 and a == b * c}[operation]


def unpaired() -> Iterator[Record]:
    """One response of each pair, the chosen one two times of five, so that the labels are not in balance."""
    for number, row in enumerate(pairs()[:320]):
        label = number % 5 < 2
        side = "chosen" if label else "rejected"
        text = {"id": row["id"], "prompt": row["prompt"], "completion": row[side]}
        yield text | {"label": label, "answer": row["answer"]}


# ------------------------------------------------------------------------------------------------------------- steps


def steps() -> Iterator[Record]:
    """Pairs with step spans, the first wrong step and step rewards."""
    for row in pairs()[:240]:
        found = _compared(row)
        if found is None:
            continue
        chosen, rejected, error = found
        yield row | {
            "chosen_steps": chosen,
            "rejected_steps": rejected,
            "first_error_step": error,
            "chosen_step_rewards": [RIGHT] * len(chosen),
            "rejected_step_rewards": [RIGHT] * (error - 1) + [WRONG] * (len(rejected) - error + 1),
        }


def weighted() -> Iterator[Record]:
    """Pairs that weigh more from the first wrong step on."""
    for row in pairs()[:240]:
        found = _compared(row)
        if found is None:
            continue
        *spans, error = found
        starts = [steps_of[error - 1][0] for steps_of in spans]
        yield row | {
            f"{side}_weights": [[start, len(row[side]), SEVERE]]
            for side, start in zip(("chosen", "rejected"), starts, strict=True)
        }


def step_pairs() -> Iterator[Record]:
    """The first wrong step against the right one, behind the right steps before it."""
    for row in pairs()[:240]:
        found = _compared(row)
        if found is None:
            continue
        chosen, rejected, error = found
        span = rejected[error - 1]
        marker = f"Step {error}:"
        right, wrong = (
            _only_step(row[side], span, marker) for side, span in (("chosen", chosen[error - 1]), ("rejected", span))
        )
        if right.strip() and wrong.strip() and right != wrong:
            yield {
                "id": f"{row['id']}-step-{error}",
                "prompt": row["prompt"],
                "initial_reason_steps": row["rejected"][: span[0]] + marker,
                "chosen": right,
                "rejected": wrong,
                "answer": row["answer"],
            }


def rise_pairs() -> Iterator[Record]:
    """Step pairs and whole pairs in turns."""
    for step, whole in zip(step_pairs(), pairs()[240:400], strict=False):
        yield from (step, whole)


def edits() -> Iterator[Record]:
    """The rejected solution with right steps from the first wrong one on, against the rejected solution."""
    for row in pairs()[:240]:
        found = _compared(row)
        if found is None:
            continue
        chosen, rejected, error = found
        edited = row["rejected"][: rejected[error - 1][0]] + row["chosen"][chosen[error - 1][0] :]
        spans = difference(edited, row["rejected"])
        yield row | {"chosen": edited, "diff_spans_chosen": spans[0], "diff_spans_rejected": spans[1]}


def _compared(row: Record) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int] | None:
    """Spans of the steps of both responses and the number of the first wrong one; None for another kind of solution."""
    right, wrong = (step_spans(row[side]) for side in ("chosen", "rejected"))
    if right is None or wrong is None or len(right) != len(wrong):
        return None
    error = first_error(row["rejected"], wrong, row["chosen"], right)
    return None if error is None else (right, wrong, error)


def step_spans(text: str) -> list[tuple[int, int]] | None:
    """`[start, end)` of each step, its marker included, the answer with the last; None when they are not in order."""
    found = list(_STEP.finditer(text))
    starts = [match.start() for match in found]
    if not starts or starts[0] != 0 or [int(match[1]) for match in found] != list(range(1, len(found) + 1)):
        return None
    return list(zip(starts, [*starts[1:], len(text)], strict=True))


def first_error(text: str, spans: Sequence[tuple[int, int]], right: str, its: Sequence[tuple[int, int]]) -> int | None:
    """The first step, from 1, whose number is not that of the right solution's step; None when all are."""
    for number, (ours, theirs) in enumerate(zip(spans, its, strict=False), start=1):
        a, b = _EQUATION.search(text[slice(*ours)]), _EQUATION.search(right[slice(*theirs)])
        if a is None or b is None:
            return None
        if not _is_true(*a.groups()) or a[4] != b[4]:
            return number
    return None


def _only_step(text: str, span: tuple[int, int], marker: str) -> str:
    return text[slice(*span)].removeprefix(marker).split("\n")[0]


def difference(a: str, b: str) -> tuple[list[list[int]], list[list[int]]]:
    """Character spans of the words of two texts that are not in the other, in order."""
    words = [[(m[0], m.start(), m.end()) for m in re.finditer(r"\w+|[^\w\s]", text)] for text in (a, b)]
    matcher = difflib.SequenceMatcher(None, [w[0] for w in words[0]], [w[0] for w in words[1]], autojunk=False)
    spans: tuple[list[list[int]], list[list[int]]] = ([], [])
    for tag, *places in matcher.get_opcodes():
        if tag != "equal":
            for side, (first, last) in enumerate((places[:2], places[2:])):
                spans[side].extend([start, end] for _, start, end in words[side][first:last])
    return spans


# ------------------------------------------------------------------------------------------------------------ models


@cache
def model(name: str) -> tuple[Any, Any]:
    """A demonstration model in float32 and evaluation mode, and its tokenizer."""
    folder = demo_model_path(name)
    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval(), AutoTokenizer.from_pretrained(folder)


def token_scores(contrast: float = 1.0) -> Iterator[Record]:
    """Pairs with a contrastive score for each response token."""
    _, tokenizer = model("demo:tiny-math")
    for row in pairs()[:120]:
        found = encode_row(row, tokenizer, _OPTIONS)
        assert not isinstance(found, Rejection)
        columns = {}
        for side, ids in zip(("chosen", "rejected"), found.responses, strict=True):
            scores = _contrasted(found.prompt_ids, ids, contrast)
            columns[f"{side}_token_scores"] = {"ids": ids, "scores": [round(score, 3) for score in scores]}
        yield row | columns


@torch.no_grad()
def _contrasted(prompt: list[int], response: list[int], contrast: float) -> list[float]:
    ids = torch.tensor([prompt + response])
    better, worse = (model(name)[0](ids).logits[0, len(prompt) - 1 : -1] for name in _MODELS)
    scores = contrast_scores(better, worse, torch.tensor(response), contrast=contrast)
    return [float(score) for score in scores]


_MODELS = ("demo:tiny-math", "demo:tiny-math-base")


@cache
def samples() -> tuple[tuple[Record, tuple[str, ...]], ...]:
    """The problems, one per prompt, each with the different finished samples of the demonstration model."""
    policy, tokenizer = model("demo:tiny-math")
    problems = list({row["prompt"]: row for row in pairs()}.values())[:160]
    ids = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": row["prompt"]}], add_generation_prompt=True, return_dict=False
        )
        for row in problems
    ]
    texts = generate(policy, tokenizer, ids, max_new_tokens=128, temperature=TEMPERATURE, samples=SAMPLES, seed=SEED)
    finished = [tuple(dict.fromkeys(t for t in found if final_answer(t) is not None)) for found in texts]
    return tuple(zip(problems, finished, strict=True))


def negatives() -> Iterator[Record]:
    """A right solution and all wrong samples, two at least."""
    for row, texts in samples():
        wrong = [text for text in texts if not same_answer(final_answer(text), row["answer"])]
        if len(wrong) >= 2:
            yield row | {"rejected": wrong}


def groups() -> Iterator[Record]:
    """All samples of a prompt, right ones and wrong ones among them, with steps and step rewards."""
    for row, texts in samples():
        solution = step_spans(row["chosen"])
        usable = [text for text in texts if step_spans(text) is not None]
        rewards = [float(same_answer(final_answer(text), row["answer"])) for text in usable]
        if solution is None or not 0 < sum(rewards) < len(rewards):
            continue
        spans = [step_spans(text) or [] for text in usable]
        yield {
            "id": row["id"],
            "prompt": row["prompt"],
            "responses": usable,
            "rewards": rewards,
            "responses_steps": spans,
            "responses_step_rewards": [
                _rewards(t, s, r, row["chosen"], solution) for t, s, r in zip(usable, spans, rewards, strict=True)
            ],
            "answer": row["answer"],
        }


def _rewards(
    text: str, spans: list[tuple[int, int]], outcome: float, right: str, its: list[tuple[int, int]]
) -> list[float]:
    if outcome:
        return [RIGHT] * len(spans)
    error = first_error(text, spans, right, its) or len(spans)  # what is wrong shows at the end at the latest
    return [RIGHT] * (error - 1) + [WRONG] * (len(spans) - error + 1)


def dispreferred() -> Iterator[Record]:
    """Right samples beside one wrong one, which the lowest reward marks."""
    for row, texts in samples():
        right = [text for text in texts if same_answer(final_answer(text), row["answer"])]
        wrong = [text for text in texts if text not in right]
        if len(right) >= 2 and wrong:
            group = {"responses": [*right, wrong[0]], "rewards": [1.0] * len(right) + [0.0]}
            yield {"id": row["id"], "prompt": row["prompt"], **group, "answer": row["answer"]}


def deviations() -> Iterator[Record]:
    """Right against wrong samples, each with its deviation from the other samples of the prompt."""
    for row, texts in samples():
        right = [text for text in texts if same_answer(final_answer(text), row["answer"])]
        wrong = [text for text in texts if text not in right]
        weights = dict(zip(texts, deviation_weights(texts), strict=True))
        for number, (chosen, rejected) in enumerate(zip(right, wrong, strict=False)):
            if len(texts) >= 3:
                yield {
                    "id": f"{row['id']}-{number}",
                    "prompt": row["prompt"],
                    "chosen": chosen,
                    "rejected": rejected,
                    "chosen_deviation": weights[chosen],
                    "rejected_deviation": weights[rejected],
                    "answer": row["answer"],
                }


def deviation_weights(texts: Sequence[str]) -> list[float]:
    """Mean distance to the other texts, scaled to 0..1, over its mean; 1 when all are equal."""
    counts = [Counter(re.findall(r"\w+|[^\w\s]", text)) for text in texts]
    raw = [sum(_distance(a, b) for b in counts if b is not a) / max(len(counts) - 1, 1) for a in counts]
    low, high = min(raw, default=0.0), max(raw, default=0.0)
    if high - low < 1e-9:
        return [1.0] * len(raw)
    scaled = [(value - low) / (high - low) for value in raw]
    return [round(value * len(scaled) / sum(scaled), 4) for value in scaled]


def _distance(a: Counter[str], b: Counter[str]) -> float:
    shared = sum(a[word] * b[word] for word in a)
    return 1 - shared / math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))


MAKERS: dict[str, Callable[[], Iterator[Record]]] = {
    "scored": scored,
    "unpaired": unpaired,
    "steps": steps,
    "weighted": weighted,
    "step_pairs": step_pairs,
    "rise_pairs": rise_pairs,
    "token_scores": token_scores,
    "edits": edits,
    "deviations": deviations,
    "negatives": negatives,
    "groups": groups,
    "dispreferred": dispreferred,
}


def distinct(records: Iterable[Record]) -> Iterator[Record]:
    """Each record once, whatever its id, and none with a character that a tokenizer could not decode."""
    seen = set()
    for record in records:
        content = json.dumps({name: value for name, value in record.items() if name != "id"}, sort_keys=True)
        if content not in seen and "\\ufffd" not in content:
            seen.add(content)
            yield record


def main() -> None:
    """Parse the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", choices=[*MAKERS, []], metavar="FILE")
    parser.add_argument("--out", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for name in arguments.files or MAKERS:
        path = arguments.out / f"{name}.jsonl"
        log.info("%s: %d records", path, write_records(path, distinct(MAKERS[name]())))


if __name__ == "__main__":
    main()
