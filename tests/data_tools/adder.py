"""A model that adds up the numbers of its prompt step by step, wrongly now and then: quick and seeded."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from data_tools.generators import Answer, GenFailure, GenRequest, GenResult


def problem(number: int, length: int = 4) -> dict[str, str]:
    rng = random.Random(number)
    numbers = [rng.randint(11, 40) for _ in range(length)]
    prompt = "Add " + ", ".join(map(str, numbers)) + "."
    return {"id": f"sum-{number}", "prompt": prompt, "answer": str(sum(numbers))}


class Adder:
    """Each step is wrong with probability `wrong` times the temperature. `asked` keeps the requests.

    With `slips` wrong steps have false equations, otherwise they use a number that is not there and are true.
    """

    identity: ClassVar[dict[str, str]] = {"generator": "adder"}
    together = 1

    def __init__(self, *, wrong: float = 0.3, slips: bool = False, failing: str = "") -> None:
        self.wrong, self.slips, self.failing = wrong, slips, failing
        self.asked: list[GenRequest] = []

    def answers(self, requests: Sequence[GenRequest]) -> Iterator[tuple[int, Answer]]:
        for place, request in enumerate(requests):
            self.asked.append(request)
            if self.failing and self.failing in str(request.prompt):
                yield place, GenFailure("http_500", "no")
            else:
                yield place, GenResult(self.text(request))

    def text(self, request: GenRequest) -> str:
        rng = random.Random(request.seed)
        numbers = [int(n) for n in re.findall(r"\d+", str(request.prompt))]
        done = re.findall(r"= (\d+)\.", request.prefill)
        value = int(done[-1]) if done else numbers[0]
        begun = request.prefill.endswith(":")
        text = ""
        for step in range(len(done) + 1, len(numbers)):
            text += "" if begun else f"\nStep {step}:" if request.prefill or text else f"Step {step}:"
            begun = False
            add, shift = numbers[step], 0
            if rng.random() < self.wrong * request.temperature:
                add, shift = (add, rng.randint(1, 9)) if self.slips else (add + rng.randint(1, 9), 0)
            text += f" {value} + {add} = {value + add + shift}."
            value += add + shift
        text += f"\nThe answer is {value}."
        return text[: min([at for stop in request.stop if (at := text.find(stop)) >= 0], default=len(text))]
