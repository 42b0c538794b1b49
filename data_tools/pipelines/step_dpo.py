"""Step-DPO: collect wrong solutions, find where they go wrong, draw right continuations from there, make pairs.

Source: arXiv:2406.18629 and its released code.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from data_tools.equations import Verdict, judged
from data_tools.errors import RecordError
from data_tools.generators import Generator, GenReply, GenRequest, generate, seed_of
from data_tools.pipelines.localise import Candidate, Localiser, Location
from data_tools.pipelines.problem import Problem, is_right, why_none
from data_tools.pipelines.samples import Sampling, collect
from data_tools.run import Output
from data_tools.steps import Step, StepError, Steps, split_steps

_MARKER = re.compile(r"^Step \d{1,6}:", re.MULTILINE)


@dataclass(frozen=True)
class StepPair:
    """Two next steps behind the same beginning, and both to their ends."""

    beginning: str
    chosen: str
    rejected: str
    full_chosen: str
    full_rejected: str

    def row(self, problem: Problem) -> dict[str, Any]:
        """The published columns, `dataset` aside."""
        return {
            "prompt": problem.prompt,
            "initial_reason_steps": self.beginning,
            "chosen": self.chosen,
            "rejected": self.rejected,
            "full_chosen": self.full_chosen,
            "full_rejected": self.full_rejected,
            "answer": problem.answer,
        }


def step_pairs(steps: Steps, number: int, continuations: Iterable[str], *, splitter: str) -> Iterator[StepPair]:
    """Pairs of step `number` of a wrong solution with the first step of each right continuation from before it.

    Of continuations with the same first step only the first is used, and none whose step is the wrong one. A
    continuation that cannot be split into steps behind the beginning is passed over.
    """
    beginning, rejected = steps.prefix(number), steps.body(number)
    seen = {_squeezed(rejected)}
    for text in continuations:
        chosen = next_step(beginning, text, number, splitter)
        if chosen is None or _squeezed(chosen) in seen:
            continue
        seen.add(_squeezed(chosen))
        yield StepPair(beginning, chosen, rejected, text, steps.tail(number))


def next_step(beginning: str, text: str, number: int, splitter: str) -> str | None:
    """The first step of a text behind a beginning; None where there is no such step.

    Where steps are numbered, beginning and text are split together: the beginning ends in the marker of step `number`.
    """
    numbered = splitter == "numbered" or (splitter == "auto" and _MARKER.search(beginning))
    head = beginning if numbered else ""
    try:
        steps = split_steps(head + text, splitter)
    except StepError:
        return None
    place = number if numbered else 1
    if len(steps) < place or steps[place].end <= len(head):
        return None
    return steps.text[len(head) : steps[place].end]


@dataclass(frozen=True)
class StepDPO:
    """The pipeline. `given` names a column with wrong solutions, which are then not sampled; their steps are
    those of column `GIVEN_steps` where there is one.
    """

    generator: Generator
    localiser: Localiser
    sampling: Sampling
    rectify: Sampling
    splitter: str = "numbered"
    wrong_per_problem: int = 1
    pairs: int = 20
    check: bool = True
    count_open_as_wrong: bool = False
    given: str | None = None
    dataset: str = "step-dpo"

    def __call__(self, problems: Sequence[Problem]) -> list[list[Output]]:
        """Rows and rejects of each problem."""
        outputs: list[list[Output]] = [[] for _ in problems]
        candidates = self._candidates(problems, outputs)
        locations = self.localiser.locate([candidate for _, candidate in candidates])
        located = []
        for (place, candidate), location in zip(candidates, locations, strict=True):
            if location.step is None:
                reject = candidate.problem.reject(f"{location.by}:{location.reason}", location.detail)
                outputs[place].append(reject)
            else:
                located.append((place, candidate, location, location.step))
        requests = [self._rectify(candidate, step) for _, candidate, _, step in located]
        for (place, candidate, location, step), reply in zip(located, generate(self.generator, requests), strict=True):
            outputs[place] += self._rows(candidate, location, step, reply, made=len(outputs[place]))
        return outputs

    def _candidates(self, problems: Sequence[Problem], outputs: list[list[Output]]) -> list[tuple[int, Candidate]]:
        """Wrong solutions that can be split into steps."""
        if self.given is None:
            samples = collect(self.generator, problems, self.sampling, count_open_as_wrong=self.count_open_as_wrong)
            texts = [found.wrong[: self.wrong_per_problem] for found in samples]
            for place, found in enumerate(samples):
                if not found.drawn and found.failure is not None:
                    outputs[place].append(problems[place].reject(found.failure.reason, found.failure.detail))
                elif not found.wrong:
                    outputs[place].append(problems[place].reject("no_wrong_sample", f"{len(found.right)} right"))
        else:
            texts = [[text] if isinstance(text := problem.record.get(self.given), str) else [] for problem in problems]
            for place, listed in enumerate(texts):
                if not listed:
                    outputs[place].append(problems[place].reject("missing_column", f"'{self.given}' has no text"))
        candidates = []
        for place, problem in enumerate(problems):
            for text in texts[place]:
                try:
                    candidates.append((place, self._candidate(problem, text)))
                except RecordError as error:
                    outputs[place].append(problem.reject(error.reason, str(error)))
        return candidates

    def _candidate(self, problem: Problem, text: str) -> Candidate:
        """Raises: `RecordError` for a solution without usable steps."""
        spans = problem.record.get(f"{self.given}_steps") if self.given else None
        try:
            steps = split_steps(text, self.splitter) if spans is None else Steps(text, _given_steps(text, spans))
        except StepError as error:
            raise RecordError(str(error), reason="no_steps") from error
        if not len(steps):
            raise RecordError(f"no steps for splitter '{self.splitter}'", reason="no_steps")
        label = problem.record.get("first_error_step")
        return Candidate(problem, steps, label if isinstance(label, int) and not isinstance(label, bool) else None)

    def _rectify(self, candidate: Candidate, step: int) -> GenRequest:
        problem, drawn = candidate.problem, self.rectify
        return GenRequest(
            prompt=problem.asked,
            prefill=candidate.steps.prefix(step),
            n=drawn.samples,
            temperature=drawn.temperature,
            top_p=drawn.top_p,
            max_tokens=drawn.max_tokens,
            seed=seed_of(drawn.seed, problem.id, "rectify", candidate.steps.text, step),
        )

    def _rows(
        self, candidate: Candidate, location: Location, step: int, reply: GenReply, *, made: int
    ) -> Iterator[Output]:
        problem, beginning = candidate.problem, candidate.steps.prefix(step)
        if not reply.results:
            failure = why_none(reply)
            yield problem.reject(failure.reason, failure.detail)
            return
        tolerance = self.sampling.abs_tol
        right = [text for text in reply.texts if is_right(beginning + text, problem.answer, abs_tol=tolerance)]
        if not right:
            yield problem.reject("not_rectified", f"none of {len(reply.results)} continuations of step {step} is right")
            return
        found = list(step_pairs(candidate.steps, step, right, splitter=self.splitter))
        usable = [pair for pair in found if not self.check or tells_apart(pair)]
        if not usable:
            detail = "each has a false equation, or comes to the same result as the wrong step"
            yield problem.reject("no_new_step", f"of {len(found)} new steps {detail}" if found else "")
        for number, pair in enumerate(usable[: self.pairs], start=made):
            yield self._row(pair, problem, location, step, number)

    def _row(self, pair: StepPair, problem: Problem, location: Location, step: int, number: int) -> dict[str, Any]:
        return {
            "id": f"{problem.id}#step-{number}",
            "source_id": problem.id,
            "dataset": self.dataset,
            **pair.row(problem),
            "complete": False,
            "first_error_step": 1,
            "solution_step": step,
            "chosen_steps": [[0, len(pair.chosen)]],
            "rejected_steps": [[0, len(pair.rejected)]],
            "pair_kind": "step",
            "located_by": location.by,
            **({"judge_said": location.said} if location.said else {}),
        }


def _given_steps(text: str, spans: Any) -> tuple[Step, ...]:
    """Steps as the data say where they are. Raises: `StepError` for spans that are none."""
    steps: list[Step] = []
    for span in spans if isinstance(spans, list) else [None]:
        at = steps[-1].end if steps else 0
        if not (
            isinstance(span, list)
            and len(span) == 2
            and all(isinstance(place, int) for place in span)
            and at <= span[0] < span[1] <= len(text)
        ):
            raise StepError("the steps must be spans [start, end) of the solution, in order.")
        steps.append(Step(span[0], span[0], span[1]))
    return tuple(steps)


def tells_apart(pair: StepPair) -> bool:
    """Whether the equations speak for the pair: none of the right step is false, and it comes to another result.

    Of two steps with the same result and no false equation, the rejected one is most likely right as well, and was
    located by bad luck. Steps without equations are taken at their word.
    """
    chosen, rejected = judged(pair.chosen), judged(pair.rejected)
    if any(verdict is Verdict.FALSE for _, verdict in chosen):
        return False
    if not chosen or not rejected or any(verdict is Verdict.FALSE for _, verdict in rejected):
        return True
    right, wrong = (equations[-1][0].sides[-1].value for equations in (chosen, rejected))
    return right is None or right != wrong


def _squeezed(text: str) -> str:
    return " ".join(text.split())
