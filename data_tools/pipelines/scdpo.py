"""SCDPO: right solutions kept up to a step and continued ever more wildly until they end wrong.

Source: arXiv:2407.00782 and its released code.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from data_tools.errors import DataToolsError
from data_tools.extraction import extract_answer
from data_tools.generators import Generator, GenFailure, GenRequest, generate, seed_of
from data_tools.inject import SolutionItem, build_pair, row_random
from data_tools.inject.rule import RuleInjector
from data_tools.pipelines.problem import Problem, is_right, why_none
from data_tools.pipelines.samples import Samples, Sampling, collect
from data_tools.run import Output
from data_tools.steps import StepError, Steps, split_steps

STOPS = {"numbered": "\nStep ", "paragraph": "\n\n", "line": "\n"}
"""Where the next step begins, by splitter: there a model is stopped, to go on at another temperature."""

MAX_STEP = 3000
"""Characters. Longer steps are loops."""

_APOLOGY = re.compile(r"error|apolog", re.IGNORECASE)


@dataclass(frozen=True)
class Heat:
    """The temperature of the i-th step behind the cut, from 0: min(start + i * increment, cap).

    The paper adds 0.05 a step, the released code 0.1.
    """

    start: float = 1.1
    increment: float = 0.05
    cap: float = 1.4

    def at(self, step: int) -> float:
        """The temperature."""
        return round(min(self.start + step * self.increment, self.cap), 10)


@dataclass
class _Tail:
    """A continuation that is being written, one step at a time."""

    problem: Problem
    right: Steps
    kept: int
    negative: int
    text: str = ""
    steps: int = 0
    over: bool = False
    failure: GenFailure | None = None

    @property
    def beginning(self) -> str:
        return self.right.prefix(self.kept + 1)


@dataclass(frozen=True)
class SCDPO:
    """The pipeline. Per problem, `naive` ordinary pairs of whole solutions and `negatives` with a shared beginning.

    With `by_rule` the wrong ends are made by the rule injector, and only right solutions are sampled.
    """

    generator: Generator
    sampling: Sampling
    heat: Heat = field(default_factory=Heat)
    splitter: str = "numbered"
    rounds: int = 12
    naive: int = 1
    negatives: int = 2
    tries: int = 4
    max_steps: int = 24
    by_rule: bool = False

    def __post_init__(self) -> None:
        if self.splitter not in STOPS:
            raise DataToolsError(f"SCDPO stops a model at step ends: --splitter must be one of {', '.join(STOPS)}.")

    def __call__(self, problems: Sequence[Problem]) -> list[list[Output]]:
        """Rows and rejects of each problem."""
        outputs: list[list[Output]] = [[] for _ in problems]
        samples = collect(self.generator, problems, self.sampling, rounds=self.rounds)
        kept: dict[int, Steps] = {}
        for place, (problem, found) in enumerate(zip(problems, samples, strict=True)):
            right = [text for text in found.right if not _APOLOGY.search(text)]
            steps = next((s for text in right if (s := self._split(text)) is not None), None)
            if steps is None:
                outputs[place].append(problem.reject(*_why_no_right(found)))
                continue
            kept[place] = steps
            outputs[place] += naive_rows(problem, right, found.wrong, self.naive)
        wrong = self._by_rule(problems, kept) if self.by_rule else self._sampled(problems, kept)
        for place, rows in wrong.items():
            outputs[place] += rows or [problems[place].reject("no_wrong_end", "every continuation is right or open")]
        return outputs

    def _split(self, text: str) -> Steps | None:
        try:
            steps = split_steps(text, self.splitter)
        except StepError:
            return None
        return steps if 1 <= len(steps) <= self.max_steps and self._cuts(steps) else None

    def _cuts(self, steps: Steps) -> range:
        """How many steps may be kept. Beside ordinary pairs none that keeps nothing: it would be another of them."""
        return range(1 if self.naive else 0, len(steps))

    # ------------------------------------------------------------------------------------------------ sampled ends

    def _sampled(self, problems: Sequence[Problem], kept: dict[int, Steps]) -> dict[int, list[Output]]:
        found: dict[int, list[Output]] = {place: [] for place in kept}
        seen: dict[int, set[tuple[int, str]]] = {}
        missing = [(place, number) for place in kept for number in range(self.negatives)]
        for attempt in range(self.tries):
            tails = [self._begin(problems[place], kept[place], number, attempt) for place, number in missing]
            self._write(tails, attempt)
            again = []
            for (place, number), tail in zip(missing, tails, strict=True):
                if self._is_negative(tail) and (tail.kept, tail.text) not in seen.setdefault(place, set()):
                    seen[place].add((tail.kept, tail.text))
                    found[place].append(self._row(tail, extract_answer(tail.text)))
                elif tail.failure is not None and attempt == self.tries - 1:
                    found[place].append(tail.problem.reject(tail.failure.reason, tail.failure.detail))
                else:
                    again.append((place, number))
            missing = again
        return found

    def _is_negative(self, tail: _Tail) -> bool:
        """Whether a tail was written to its end, ends wrong, and has no step that went on and on."""
        wrong = tail.failure is None and is_right(tail.text, tail.problem.answer) is False
        return wrong and all(len(step) <= MAX_STEP for step in tail.text.split(STOPS[self.splitter]))

    def _begin(self, problem: Problem, right: Steps, number: int, attempt: int) -> _Tail:
        rng: random.Random = row_random(self.sampling.seed, problem.id, f"cut-{number}", attempt)
        return _Tail(problem, right, rng.choice(self._cuts(right)), number)

    def _write(self, tails: Sequence[_Tail], attempt: int) -> None:
        """Write all tails, step by step together."""
        while active := [tail for tail in tails if not tail.over]:
            requests = [self._request(tail, attempt) for tail in active]
            for tail, reply in zip(active, generate(self.generator, requests), strict=True):
                if not reply.results:
                    tail.failure, tail.over = why_none(reply), True
                    continue
                result = reply.results[0]
                tail.text += result.text
                tail.steps += 1
                stated = extract_answer(tail.text) is not None
                tail.over = (
                    stated
                    or result.finish_reason == "length"
                    or not result.text.strip()
                    or tail.kept + tail.steps >= self.max_steps
                )
                if not tail.over:
                    tail.text += self._marker(tail.kept + tail.steps + 1)

    def _request(self, tail: _Tail, attempt: int) -> GenRequest:
        return GenRequest(
            prompt=tail.problem.asked,
            prefill=tail.beginning + tail.text,
            temperature=self.heat.at(tail.steps),
            top_p=self.sampling.top_p,
            max_tokens=self.sampling.max_tokens,
            stop=(STOPS[self.splitter],),
            seed=seed_of(self.sampling.seed, tail.problem.id, "tail", tail.negative, attempt, tail.steps),
        )

    def _marker(self, number: int) -> str:
        return f"\nStep {number}:" if self.splitter == "numbered" else STOPS[self.splitter]

    def _row(self, tail: _Tail, stated: str | None) -> dict[str, Any]:
        return {
            "id": f"{tail.problem.id}#suffix-{tail.negative}",
            "source_id": tail.problem.id,
            "prompt": tail.problem.prompt,
            "initial_reason_steps": tail.beginning,
            "chosen": tail.right.tail(tail.kept + 1),
            "rejected": tail.text,
            "complete": True,
            "answer": tail.problem.answer,
            "rejected_answer": stated,
            "solution_step": tail.kept + 1,
            "pair_kind": "suffix",
        }

    # ------------------------------------------------------------------------------------------------ ends by rule

    def _by_rule(self, problems: Sequence[Problem], kept: dict[int, Steps]) -> dict[int, list[Output]]:
        injector = RuleInjector(mode="suffix", pairs=self.negatives)
        found: dict[int, list[Output]] = {}
        for place, steps in kept.items():
            problem = problems[place]
            item = SolutionItem(problem.id, problem.text, steps, problem.answer)
            errors = injector.inject(item, row_random(self.sampling.seed, problem.id, "suffix"))
            found[place] = [
                build_pair(item, error, "suffix", number=number, prompt=problem.prompt)
                for number, error in enumerate(errors)
            ]
        return found


def naive_rows(problem: Problem, right: Sequence[str], wrong: Sequence[str], limit: int) -> list[dict[str, Any]]:
    """Ordinary pairs of whole solutions, the first right one with the first wrong one and so on."""
    return [
        {
            "id": f"{problem.id}#full-{number}",
            "source_id": problem.id,
            "prompt": problem.prompt,
            "initial_reason_steps": "",
            "chosen": chosen,
            "rejected": rejected,
            "complete": True,
            "answer": problem.answer,
            "rejected_answer": extract_answer(rejected),
            "pair_kind": "full",
        }
        for number, (chosen, rejected) in enumerate(list(zip(right, wrong, strict=False))[:limit])
    ]


def _why_no_right(found: Samples) -> tuple[str, str]:
    if not found.drawn and found.failure is not None:
        return found.failure.reason, found.failure.detail
    if not found.right:
        return "no_right_sample", f"{len(found.wrong)} wrong and {len(found.open)} open among {found.drawn} samples"
    return "no_usable_right_sample", "none that can be cut into steps and speaks of no error of its own"
