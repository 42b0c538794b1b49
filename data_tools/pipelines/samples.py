"""A model's own solutions of a problem, told apart by their final answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from data_tools.annotations import without_annotations
from data_tools.generators import Generator, GenFailure, GenRequest, generate, seed_of
from data_tools.pipelines.problem import Problem, is_right, why_none


@dataclass(frozen=True)
class Sampling:
    """How solutions are drawn. Every solution begins with `prefill`, which is part of it."""

    samples: int
    temperature: float
    top_p: float = 1.0
    max_tokens: int = 2048
    prefill: str = ""
    seed: int = 0
    abs_tol: float | None = None

    def request(self, problem: Problem, round_: int = 0) -> GenRequest:
        """The request for one round of samples of a problem."""
        return GenRequest(
            prompt=problem.asked,
            prefill=self.prefill,
            n=self.samples,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            seed=seed_of(self.seed, problem.id, "collect", round_),
        )


@dataclass
class Samples:
    """Solutions of one problem, each text once, in the order of their seeds, without calculator annotations.

    `open` state no answer, or were cut.
    """

    right: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    drawn: int = 0
    failure: GenFailure | None = None

    def add(self, text: str, verdict: bool | None) -> None:
        """One more solution."""
        self.drawn += 1
        side = self.open if verdict is None else self.right if verdict else self.wrong
        if text not in side:
            side.append(text)


def collect(
    generator: Generator,
    problems: Sequence[Problem],
    sampling: Sampling,
    *,
    rounds: int = 1,
    count_open_as_wrong: bool = False,
) -> list[Samples]:
    """Samples of each problem. Further rounds draw more where right or wrong ones are still missing."""
    found = [Samples() for _ in problems]
    for round_ in range(rounds):
        asked = [place for place, samples in enumerate(found) if not (samples.right and samples.wrong)]
        replies = generate(generator, [sampling.request(problems[place], round_) for place in asked])
        for place, reply in zip(asked, replies, strict=True):
            if not reply.results:
                found[place].failure = why_none(reply)
            for result in reply.results:
                text, _ = without_annotations(sampling.prefill + result.text)
                verdict = is_right(text, problems[place].answer, abs_tol=sampling.abs_tol)
                if verdict is None and count_open_as_wrong:
                    verdict = False
                found[place].add(text, verdict)
    return found
