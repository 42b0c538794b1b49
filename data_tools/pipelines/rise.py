"""RISE: a right solution against the same with one step edited, beside ordinary pairs of right and wrong solutions.

Source: arXiv:2410.06638 and its released code.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from data_tools.generators import Continuations, Generator, seed_of
from data_tools.inject import Injection, ModelInjector, RuleInjector, SolutionItem, build_pair, provenance, row_random
from data_tools.inject.screen import Filters, reveals
from data_tools.pipelines.problem import Problem
from data_tools.pipelines.samples import Samples, Sampling, collect
from data_tools.pipelines.scdpo import naive_rows
from data_tools.run import Output
from data_tools.steps import StepError, split_steps


@dataclass(frozen=True)
class RISE:
    """The pipeline. `edits` rows with an edited step per problem, made by rule or with `by_model` by the generator."""

    generator: Generator
    sampling: Sampling
    splitter: str = "numbered"
    edits: int = 1
    naive: int = 1
    rounds: int = 1
    by_model: bool = False
    filters: Filters = field(default_factory=Filters)

    def __call__(self, problems: Sequence[Problem]) -> list[list[Output]]:
        """Rows and rejects of each problem."""
        outputs: list[list[Output]] = [[] for _ in problems]
        samples = collect(self.generator, problems, self.sampling, rounds=self.rounds)
        items: dict[int, SolutionItem] = {}
        for place, (problem, found) in enumerate(zip(problems, samples, strict=True)):
            right = [text for text in found.right if not reveals(problem.text, text)]
            if not right or not found.wrong:
                outputs[place].append(problem.reject(*_why_none(found)))
                continue
            rng = row_random(self.sampling.seed, problem.id, "draw")
            chosen, rejected = rng.choice(right), rng.choice(found.wrong)
            outputs[place] += naive_rows(problem, [chosen], [rejected], self.naive)
            try:
                steps = split_steps(chosen, self.splitter)
            except StepError as error:
                outputs[place].append(problem.reject("no_steps", str(error)))
                continue
            if len(steps):
                items[place] = SolutionItem(problem.id, problem.text, steps, problem.answer)
        for place, injections in self._edited(items).items():
            outputs[place] += self._rows(problems[place], items[place], injections)
        return outputs

    def _edited(self, items: Mapping[int, SolutionItem]) -> dict[int, list[Injection]]:
        if not self.by_model:
            injector = RuleInjector(mode="step", pairs=self.edits, filters=self.filters)
            return {place: injector.inject(item, self._random(item)) for place, item in items.items()}
        # every solution says what it would ask; all is asked at once; then each is served
        questions = _Questions()
        for item in items.values():
            self._by_model(questions, item)
        asked = list(dict.fromkeys(questions.prompts))
        continuations = Continuations(self.generator, seed=seed_of(self.sampling.seed, "edit"))
        served = _Served(dict(zip(asked, continuations.generate(asked), strict=True)))
        return {place: self._by_model(served, item) for place, item in items.items()}

    def _by_model(self, generator: "_Questions | _Served", item: SolutionItem) -> list[Injection]:
        filters = replace(self.filters, plausible=False)  # a model may choose other values than rules would
        injector = ModelInjector(generator, attempts=len(item.steps), pairs=self.edits, filters=filters)
        return injector.inject(item, self._random(item))

    def _random(self, item: SolutionItem) -> random.Random:
        return row_random(self.sampling.seed, item.id, "edit")

    def _rows(self, problem: Problem, item: SolutionItem, injections: Sequence[Injection]) -> list[Output]:
        if not injections:
            return [problem.reject("no_verified_edit", "no step took an edit that is wrong, close and silent about it")]
        injector = ModelInjector if self.by_model else RuleInjector
        source = provenance(injector.name, injector.version, self.sampling.seed)
        rows: list[Output] = []
        for number, injection in enumerate(injections):
            pair: dict[str, Any] = build_pair(item, injection, "step", number=number, prompt=problem.prompt)
            rows.append({**pair, "id": f"{problem.id}#edit-{number}", "complete": False, "pair_kind": "edit", **source})
        return rows


@dataclass
class _Questions:
    """Notes what it is asked and has no answer."""

    prompts: list[str] = field(default_factory=list)

    def generate(self, prompts: Sequence[str]) -> list[str]:
        self.prompts += prompts
        return ["" for _ in prompts]


@dataclass
class _Served:
    """Gives the answers that are known."""

    answers: Mapping[str, str]

    def generate(self, prompts: Sequence[str]) -> list[str]:
        return [self.answers[prompt] for prompt in prompts]


def _why_none(found: Samples) -> tuple[str, str]:
    if not found.drawn and found.failure is not None:
        return found.failure.reason, found.failure.detail
    counts = f"{len(found.right)} right, {len(found.wrong)} wrong, {len(found.open)} open"
    return ("no_wrong_sample" if found.right else "no_right_sample"), counts
