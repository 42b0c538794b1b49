"""The first wrong step by a judge model, which sees the problem, a right solution or answer, and the wrong solution."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from data_tools.generators import Generator, GenRequest, generate, seed_of
from data_tools.pipelines.localise import Candidate, Location
from data_tools.pipelines.problem import why_none

HEADING = "Final decision:"

_PROMPT = """A student's solution of the problem below ends in a wrong answer. Find the step where it first goes wrong.

Problem:
{problem}

{reference}

The student's solution, step by step:
{steps}

First write an analysis of at most 200 words that goes through the steps in order. Then write the line
"{heading}" and below it one line for each step, in order: "Step N: correct" where the step is right and helps, \
"Step N: neutral" where it is not wrong but does not help, "Step N: incorrect" where it is wrong. Stop behind the \
first incorrect step."""

_HEADING = re.compile(r"final\s+decision\W*", re.IGNORECASE)
_VERDICT = re.compile(r"step\s*(\d{1,4})\W*?[:\-–—]\W*(correct|neutral|incorrect)\b", re.IGNORECASE)
_FIGURE = re.compile(
    r"\b(?:diagram|(?:in|see) the figure|figure (?:shown|below|above)|graph below|shown (?:below|above))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ByJudge:
    """Asks for a verdict on each step up to the first wrong one.

    A neutral step counts as the error if `neutral_is_error`, as in the code of Step-DPO; its paper takes the first
    incorrect one. Problems that speak of a diagram without its source are not asked about.
    """

    generator: Generator
    neutral_is_error: bool = True
    temperature: float = 0.0
    max_tokens: int = 1024
    seed: int = 0

    def locate(self, candidates: Sequence[Candidate]) -> list[Location]:
        """One question for each solution."""
        found = [Location(None, "judge", reason="needs_diagram")] * len(candidates)
        asked = [i for i, candidate in enumerate(candidates) if not needs_diagram(candidate.problem.text)]
        replies = generate(self.generator, [self._request(candidates[i]) for i in asked])
        for i, reply in zip(asked, replies, strict=True):
            if reply.results:
                found[i] = self._location(candidates[i], reply.texts[0])
            else:
                failure = why_none(reply)
                found[i] = Location(None, "judge", reason=failure.reason, detail=failure.detail)
        return found

    def _request(self, candidate: Candidate) -> GenRequest:
        prompt = judge_prompt(candidate)
        return GenRequest(
            prompt=prompt,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=seed_of(self.seed, candidate.problem.id, "judge", candidate.steps.text),
        )

    def _location(self, candidate: Candidate, said: str) -> Location:
        step = first_wrong_verdict(said, neutral_is_error=self.neutral_is_error)
        if step is None:
            return Location(None, "judge", reason="no_verdict", detail=said[-200:], said=said)
        if not 1 <= step <= len(candidate.steps):
            return Location(None, "judge", reason="verdict_out_of_range", detail=f"step {step}", said=said)
        return Location(step, "judge", said=said)


def judge_prompt(candidate: Candidate) -> str:
    """The question to the judge."""
    problem = candidate.problem
    reference = f"A right solution:\n{problem.solution}" if problem.solution else f"The right answer: {problem.answer}"
    steps = "\n".join(f"Step {number}: {body.strip()}" for number, body in enumerate(candidate.steps, start=1))
    return _PROMPT.format(problem=problem.text, reference=reference, steps=steps, heading=HEADING)


def first_wrong_verdict(said: str, *, neutral_is_error: bool = True) -> int | None:
    """The first step called incorrect, or neutral, behind the last heading; None where there is no such verdict."""
    heading = None
    for heading in _HEADING.finditer(said):  # noqa: B007  the last one counts
        pass
    if heading is None:
        return None
    for verdict in _VERDICT.finditer(said, heading.end()):
        word = verdict[2].lower()
        if word == "incorrect" or (word == "neutral" and neutral_is_error):
            return int(verdict[1])
    return None


def needs_diagram(problem: str) -> bool:
    """Whether a problem speaks of a picture that is not there as source code."""
    return bool(_FIGURE.search(problem)) and "[asy]" not in problem and "\\begin{tikzpicture}" not in problem
