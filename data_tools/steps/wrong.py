"""The first wrong step by equation check: no model, no judge, and silent where nothing can be computed."""

from dataclasses import dataclass

from data_tools.equations import Verdict, judged
from data_tools.steps.split import Steps


@dataclass(frozen=True)
class FirstWrong:
    """What the equations of a solution say.

    `step` is the first step (from 1) with a false equation, or None. `equation` is that equation's text. `true` and
    `unknown` count the equations up to there that hold and that could not be judged. No false equation does not mean
    that the solution is right: only calculations are checked, not the set-up.
    """

    step: int | None
    equation: str
    true: int
    unknown: int

    @property
    def checked(self) -> int:
        """How many equations were decided."""
        return self.true + (self.step is not None)


def first_wrong_step(steps: Steps) -> FirstWrong:
    """Check the equations of every step in order and stop at the first that is surely false."""
    true = unknown = 0
    for number, body in enumerate(steps, start=1):
        for equation, verdict in judged(body):
            if verdict is Verdict.FALSE:
                return FirstWrong(number, body[equation.start : equation.end], true, unknown)
            true += verdict is Verdict.TRUE
            unknown += verdict is Verdict.UNKNOWN
    return FirstWrong(None, "", true, unknown)
