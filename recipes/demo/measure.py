"""How many problems a model solves, and what its wrong answers look like.

    python recipes/demo/measure.py MODEL_FOLDER PROBLEMS.jsonl [--samples 6] [--out REPORT.json]

The problems need the columns `prompt` and `answer`. Greedy answers give the accuracy; samples at temperature 1 give the
mean accuracy, the share of problems with right and wrong samples, and the kinds of mistakes.
"""

import argparse
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from data_tools.answers import final_answer, same_answer
from data_tools.records import read_records
from prefopt.demo import demo_model_path, is_demo
from prefopt.train.generate import generate

log = logging.getLogger("measure")

MAX_NEW_TOKENS = 128
_EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


@dataclass(frozen=True)
class Greedy:
    """The model's most likely answers: share right, its standard error, share that name an answer at all."""

    problems: int
    accuracy: float
    standard_error: float
    answered: float
    wrong_with_true_equations: float


@dataclass(frozen=True)
class Sampled:
    """Samples at temperature 1. `mixed`: share of problems with both right and wrong samples."""

    problems: int
    samples: int
    accuracy: float
    mixed: float
    all_right: float
    all_wrong: float
    wrong_with_true_equations: float


def load(folder: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model in float32 and evaluation mode, and its tokenizer."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval(), AutoTokenizer.from_pretrained(folder)


def answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    *,
    samples: int = 1,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[list[str]]:
    """`samples` solutions of each prompt, put to the model as a user's message."""
    ids = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=False
        )
        for prompt in prompts
    ]
    return generate(
        model, tokenizer, ids, max_new_tokens=MAX_NEW_TOKENS, temperature=temperature, samples=samples, seed=seed
    )


def is_right(solution: str, answer: str) -> bool:
    """Whether the solution ends in the right answer, however it got there."""
    return same_answer(final_answer(solution), answer)


def equations_are_true(solution: str) -> bool:
    """Whether the solution has equations and all of them are true: then a wrong answer is a wrong set-up."""
    found = _EQUATION.findall(solution)
    return bool(found) and all(_is_true(int(a), operation, int(b), int(c)) for a, operation, b, c in found)


def greedy(folder: str | Path, problems: Sequence[dict[str, Any]], *, seed: int = 0) -> Greedy:
    """Measure the most likely answers of the model in `folder`."""
    model, tokenizer = load(folder)
    solutions = [texts[0] for texts in answers(model, tokenizer, [row["prompt"] for row in problems], seed=seed)]
    right = [is_right(text, row["answer"]) for text, row in zip(solutions, problems, strict=True)]
    accuracy = _share(right)
    return Greedy(
        problems=len(problems),
        accuracy=accuracy,
        standard_error=(accuracy * (1 - accuracy) / max(1, len(right))) ** 0.5,
        answered=_share([final_answer(text) is not None for text in solutions]),
        wrong_with_true_equations=_share(
            [equations_are_true(text) for text, good in zip(solutions, right, strict=True) if not good]
        ),
    )


def sampled(folder: str | Path, problems: Sequence[dict[str, Any]], *, samples: int, seed: int = 0) -> Sampled:
    """Measure samples at temperature 1 of the model in `folder`."""
    model, tokenizer = load(folder)
    prompts = [row["prompt"] for row in problems]
    texts = answers(model, tokenizer, prompts, samples=samples, temperature=1.0, seed=seed)
    right = [[is_right(text, row["answer"]) for text in group] for group, row in zip(texts, problems, strict=True)]
    wrong = [
        text
        for group, marks in zip(texts, right, strict=True)
        for text, good in zip(group, marks, strict=True)
        if not good
    ]
    return Sampled(
        problems=len(problems),
        samples=samples,
        accuracy=_share([good for marks in right for good in marks]),
        mixed=_share([any(marks) and not all(marks) for marks in right]),
        all_right=_share([all(marks) for marks in right]),
        all_wrong=_share([not any(marks) for marks in right]),
        wrong_with_true_equations=_share([equations_are_true(text) for text in wrong]),
    )


def _share(marks: Sequence[bool]) -> float:
    return sum(marks) / len(marks) if marks else 0.0


def _is_true(left: int, operation: str, right: int, value: int) -> bool:
    if operation == "/":
        return right != 0 and left == right * value
    return {"+": left + right, "-": left - right, "*": left * right}[operation] == value


def main() -> None:
    """Parse the command line, measure, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder, or demo:NAME")
    parser.add_argument("problems", type=Path)
    parser.add_argument("--samples", type=int, default=0, help="samples per problem at temperature 1; 0 for none")
    parser.add_argument("--limit", type=int, help="only the first so many problems")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the result here as well")
    arguments = parser.parse_args()
    folder = model_folder(arguments.model)
    problems = list(read_records(arguments.problems))[: arguments.limit]
    result: dict[str, Any] = {"greedy": asdict(greedy(folder, problems, seed=arguments.seed))}
    if arguments.samples:
        measured = sampled(folder, problems, samples=arguments.samples, seed=arguments.seed)
        result["sampled"] = asdict(measured)
    text = json.dumps(result, indent=2)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)


def model_folder(spec: str) -> Path:
    """A folder as given, or that of a shipped model."""
    return demo_model_path(spec) if is_demo(spec) else Path(spec)


if __name__ == "__main__":
    main()
