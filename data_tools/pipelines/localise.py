"""The first wrong step of a wrong solution, behind one interface: equations, rollouts, a judge, human labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from data_tools.generators import Generator, GenRequest, generate, seed_of
from data_tools.pipelines.problem import Problem, is_right, why_none
from data_tools.steps import Steps, first_wrong_step


@dataclass(frozen=True)
class Candidate:
    """A wrong solution in steps. `label` is what a human says is the first wrong step, if one has said so."""

    problem: Problem
    steps: Steps
    label: int | None = None


@dataclass(frozen=True)
class Location:
    """The first wrong step (from 1) and who says so; or no step and the reason. `said` keeps a judge's own words."""

    step: int | None
    by: str
    reason: str = ""
    detail: str = ""
    said: str = ""


class Localiser(Protocol):
    """Finds first wrong steps, for many solutions at once."""

    def locate(self, candidates: Sequence[Candidate]) -> list[Location]:
        """What is found for each solution."""
        ...


class ByEquations:
    """The first step with an equation that is surely false. Wrong set-ups with true equations are not seen."""

    def locate(self, candidates: Sequence[Candidate]) -> list[Location]:
        """No model is asked."""
        found = [first_wrong_step(candidate.steps).step for candidate in candidates]
        return [Location(step, "equations", reason="" if step else "no_false_equation") for step in found]


class ByLabels:
    """What the data say: column `first_error_step`, counted from 1 over the whole solution."""

    def locate(self, candidates: Sequence[Candidate]) -> list[Location]:
        """No model is asked."""
        return [self._one(candidate) for candidate in candidates]

    @staticmethod
    def _one(candidate: Candidate) -> Location:
        step = candidate.label
        if step is None:
            return Location(None, "labels", reason="no_label")
        if not 1 <= step <= len(candidate.steps):
            detail = f"there is no step {step} among {len(candidate.steps)}"
            return Location(None, "labels", reason="label_out_of_range", detail=detail)
        return Location(step, "labels")


@dataclass(frozen=True)
class ByRollouts:
    """The first step after which no continuation reaches the right answer.

    `rollouts` continuations are drawn from behind a step; steps are tried by bisection, since what cannot be saved
    after one step cannot be saved after the next. A solution that no continuation of its beginning saves is located
    at step 1; whether step 1 can be done better is for the next stage to find out.
    """

    generator: Generator
    rollouts: int = 8
    temperature: float = 0.8
    top_p: float = 0.95
    max_tokens: int = 2048
    seed: int = 0
    abs_tol: float | None = None

    def locate(self, candidates: Sequence[Candidate]) -> list[Location]:
        """All solutions at once, one round for each halving."""
        saved = [0] * len(candidates)  # after so many steps a right answer was still reached, or nothing was written
        lost = [len(candidate.steps) for candidate in candidates]  # after so many it was not
        failed: dict[int, Location] = {}
        while places := [i for i in range(len(candidates)) if lost[i] - saved[i] > 1 and i not in failed]:
            middle = [(saved[i] + lost[i]) // 2 for i in places]
            requests = [self._request(candidates[i], step) for i, step in zip(places, middle, strict=True)]
            for i, step, request, reply in zip(
                places, middle, requests, generate(self.generator, requests), strict=True
            ):
                if not reply.results:
                    failure = why_none(reply)
                    failed[i] = Location(None, "rollouts", reason=failure.reason, detail=failure.detail)
                elif self._reaches(candidates[i], request.prefill, reply.texts):
                    saved[i] = step
                else:
                    lost[i] = step
        return [failed.get(i, Location(lost[i], "rollouts")) for i in range(len(candidates))]

    def _request(self, candidate: Candidate, step: int) -> GenRequest:
        problem, steps = candidate.problem, candidate.steps
        return GenRequest(
            prompt=problem.asked,
            prefill=steps.text[: steps[step].end],
            n=self.rollouts,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            seed=seed_of(self.seed, problem.id, "rollout", steps.text, step),
        )

    def _reaches(self, candidate: Candidate, beginning: str, texts: Sequence[str]) -> bool:
        answer = candidate.problem.answer
        return any(is_right(beginning + text, answer, abs_tol=self.abs_tol) for text in texts)


@dataclass(frozen=True)
class InTurn:
    """Several ways one after the other: the next one gets what the one before could not locate."""

    localisers: Sequence[Localiser]

    def locate(self, candidates: Sequence[Candidate]) -> list[Location]:
        """The first location that is found; else the last reason, with those before it."""
        found = [Location(None, "none", reason="not_located")] * len(candidates)
        for localiser in self.localisers:
            places = [i for i, location in enumerate(found) if location.step is None]
            if not places:
                break
            for i, location in zip(places, localiser.locate([candidates[i] for i in places]), strict=True):
                before = found[i]
                if location.step is None and before.by != "none":
                    detail = "; ".join(filter(None, (f"{before.by}: {before.reason}", location.detail)))
                    location = replace(location, detail=detail)
                found[i] = location
        return found
