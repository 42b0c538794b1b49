"""Seeded arithmetic word problems with numbered solutions: the corpus of the demonstration models.

A problem is a short story of two to four equations about one running total. The solution writes one true equation a
step and ends in "The answer is N.". With a *flaw*, some steps apply the wrong operation: their equations stay true
and the later steps follow from them, but the set-up no longer fits the story.
"""

import hashlib
import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from math import gcd
from typing import Any

from data_tools.records import DataToolsError
from data_tools.wordings import (
    BOXES,
    DISTRACTORS,
    EVENTS,
    FRACTION_WORDS,
    GROWTH_WORDS,
    NAMES,
    OPENING,
    PLANTED_FORMS,
    QUESTIONS,
    STEPS,
    THINGS,
)

EQUATIONS = (2, 3, 4)
LARGEST_NUMBER = 60
LARGEST_TOTAL = 400
STOCK_SHARE = 0.3
DISTRACTOR_SHARE = 0.25
FLAW_ELSEWHERE = 0.05
_COST = {"gain": 1, "loss": 1, "packs": 2, "grow": 1, "split": 1}
_OPERATION = {"gain": "+", "loss": "-", "stock": "*", "packs": "*", "grow": "*", "split": "/"}
_WRONG_OPERATION = {"gain": "-", "loss": "+", "packs": "+", "grow": "+"}


@dataclass(frozen=True)
class Flaw:
    """How often a solution writes the wrong operation: for the planted form of each kind, and for the other forms."""

    planted: float = 0.0
    elsewhere: float = FLAW_ELSEWHERE

    def __post_init__(self) -> None:
        for name, value in (("flaw", self.planted), ("flaw elsewhere", self.elsewhere)):
            if not 0 <= value <= 1:
                raise DataToolsError(f"{name} must be a probability from 0 to 1; got {value}.")


@dataclass(frozen=True)
class Equation:
    """One true equation, `left operation right = value`, in whole numbers."""

    left: int
    operation: str
    right: int
    value: int

    @classmethod
    def of(cls, left: int, operation: str, right: int) -> "Equation | None":
        """The equation with its value, or None where that is not a whole number within the limits of the problems."""
        if operation == "/":
            value, rest = divmod(left, right)
            return cls(left, operation, right, value) if rest == 0 and value > 0 else None
        value = {"+": left + right, "-": left - right, "*": left * right}[operation]
        return cls(left, operation, right, value) if 0 < value <= LARGEST_TOTAL else None

    def __str__(self) -> str:
        return f"{self.left} {self.operation} {self.right} = {self.value}"


@dataclass(frozen=True)
class Event:
    """One sentence that changes the total: by `n`, or by `n` groups of `size` for stock and packs."""

    kind: str
    form: str
    wrong: bool = False
    n: int = 0
    size: int = 0

    @property
    def operation(self) -> str:
        """The operation that the solution writes."""
        return _WRONG_OPERATION[self.kind] if self.wrong else _OPERATION[self.kind]


@dataclass(frozen=True)
class Problem:
    """A story with one written solution.

    `answer` is always the right one; `solution` and `equations` say what was written, and `planted` lists the indices
    of steps with the wrong operation (empty for an honest solution). `steps` are character spans [start, end) of the
    numbered steps in `solution`; `forms` names each event as kind:form.
    """

    id: str
    prompt: str
    solution: str
    answer: str
    steps: tuple[tuple[int, int], ...]
    equations: tuple[str, ...]
    forms: tuple[str, ...]
    distractor: bool
    planted: tuple[int, ...]

    def record(self) -> dict[str, Any]:
        """The problem as a row of a JSON-lines file."""
        return {
            "id": self.id,
            "prompt": self.prompt,
            "solution": self.solution,
            "answer": self.answer,
            "steps": [list(span) for span in self.steps],
            "equations": list(self.equations),
            "forms": list(self.forms),
            "distractor": self.distractor,
            "planted": list(self.planted),
        }


def make_problems(number: int, *, seed: int, flaw: Flaw | None = None, exclude: Iterable[str] = ()) -> list[Problem]:
    """`number` problems with different prompts, none of them in `exclude`.

    The same seed gives the same problems on every platform, and a longer list begins with the shorter one.

    Raises: DataToolsError if `number` is negative.
    """
    if number < 0:
        raise DataToolsError(f"the number of problems must not be negative; got {number}.")
    return list(islice(iter_problems(seed=seed, flaw=flaw, exclude=exclude), number))


def iter_problems(*, seed: int, flaw: Flaw | None = None, exclude: Iterable[str] = ()) -> Iterator[Problem]:
    """Problems without end, as in `make_problems`."""
    seen = set(exclude)
    for index in count():
        problem = make_problem(random.Random(f"problem {seed} {index}"), flaw)
        if problem.prompt not in seen:
            seen.add(problem.prompt)
            yield problem


def make_problem(draw: random.Random, flaw: Flaw | None = None) -> Problem:
    """One problem; everything that is random about it comes from `draw`."""
    outline = [_with_flaw(event, draw, flaw) for event in _outline(draw)]
    while True:  # numbers until both the right and the written solution stay in whole, positive, small numbers
        start = 0 if outline[0].kind == "stock" else draw.randint(2, LARGEST_NUMBER)
        events = _with_numbers(outline, start, draw)
        if events is not None:
            return _tell(start, events, draw)


def _outline(draw: random.Random) -> list[Event]:
    """Kinds and forms of the events, without numbers; together they need two to four equations."""
    kinds = ["stock"] if draw.random() < STOCK_SHARE else []
    left = draw.choice(EQUATIONS) - len(kinds)
    while left > 0:
        kinds.append(draw.choice([kind for kind in _COST if _COST[kind] <= left]))
        left -= _COST[kinds[-1]]
    return [Event(kind, draw.choice(list(EVENTS[kind]))) for kind in kinds]


def _with_flaw(event: Event, draw: random.Random, flaw: Flaw | None) -> Event:
    if flaw is None or event.kind not in PLANTED_FORMS:
        return event
    chance = flaw.planted if PLANTED_FORMS[event.kind] == event.form else flaw.elsewhere
    return replace(event, wrong=draw.random() < chance)


def _with_numbers(outline: list[Event], start: int, draw: random.Random) -> list[Event] | None:
    """The outline with numbers under which both totals, the right and the written one, exist; None if luck fails."""
    right = written = start
    events = []
    for blank in outline:
        event = _draw_numbers(blank, (right, written), draw)
        if event is None:
            return None
        honest, told = _equations(right, replace(event, wrong=False)), _equations(written, event)
        if honest is None or told is None:
            return None
        right, written = honest[-1].value, told[-1].value
        events.append(event)
    return events


def _draw_numbers(event: Event, totals: tuple[int, int], draw: random.Random) -> Event | None:
    match event.kind:
        case "stock" | "packs":
            return replace(event, n=draw.randint(2, 9), size=draw.randint(2, 9))
        case "grow":
            return replace(event, n=draw.choice(list(GROWTH_WORDS)))
        case "split":
            shared = gcd(*totals)
            parts = [n for n in FRACTION_WORDS if shared % n == 0]
            return replace(event, n=draw.choice(parts)) if parts else None
        case "loss":
            largest = min(LARGEST_NUMBER, totals[0] - 1)
            return replace(event, n=draw.randint(2, largest)) if largest >= 2 else None
        case _:
            return replace(event, n=draw.randint(2, LARGEST_NUMBER))


def _equations(total: int, event: Event) -> list[Equation] | None:
    """What a solution writes for one event, or None if a value falls out of range."""
    if event.kind in ("stock", "packs"):
        group = Equation.of(event.n, event.operation, event.size)
        if group is None or event.kind == "stock":
            return None if group is None else [group]
        joined = Equation.of(total, "+", group.value)
        return None if joined is None else [group, joined]
    equation = Equation.of(total, event.operation, event.n)
    return None if equation is None else [equation]


@dataclass(frozen=True)
class _Step:
    equation: Equation
    wording: str
    wrong: bool


def _tell(start: int, events: list[Event], draw: random.Random) -> Problem:
    """Put a story and its solution into words."""
    name, friend = draw.sample(NAMES, 2)
    things, others = draw.sample(THINGS, 2)
    words = {"name": name, "friend": friend, "things": things, "others": others}
    distractor = draw.random() < DISTRACTOR_SHARE
    prompt = " ".join(_sentences(start, events, distractor, words, draw))
    steps = list(_steps(start, events, draw))
    lines = [
        f"Step {number}: " + step.wording.format(equation=step.equation, n=step.equation.right, **words)
        for number, step in enumerate(steps, start=1)
    ]
    return Problem(
        id="tiny-math-" + hashlib.sha256(prompt.encode()).hexdigest()[:12],
        prompt=prompt,
        solution="\n".join([*lines, f"The answer is {steps[-1].equation.value}."]),
        answer=str(_right_answer(start, events)),
        steps=tuple(_spans(lines)),
        equations=tuple(str(step.equation) for step in steps),
        forms=tuple(f"{event.kind}:{event.form}" for event in events),
        distractor=distractor,
        planted=tuple(index for index, step in enumerate(steps) if step.wrong),
    )


def _sentences(
    start: int, events: list[Event], distractor: bool, words: dict[str, str], draw: random.Random
) -> Iterator[str]:
    """Opening, events with the distractor somewhere after the first sentence, question."""
    told = [_sentence(event, words, draw) for event in events]
    if events[0].kind != "stock":
        told.insert(0, draw.choice(OPENING).format(n=start, **words))
    if distractor:
        sentence = draw.choice(DISTRACTORS).format(n=draw.randint(2, LARGEST_NUMBER), **words)
        told.insert(draw.randint(1, len(told)), sentence)
    yield from told
    yield draw.choice(QUESTIONS).format(**words)


def _sentence(event: Event, words: dict[str, str], draw: random.Random) -> str:
    box = draw.choice(list(BOXES))
    word = (FRACTION_WORDS if event.kind == "split" else GROWTH_WORDS).get(event.n, "")
    return draw.choice(EVENTS[event.kind][event.form]).format(
        n=event.n, k=event.n, m=event.size, word=word, box=box, boxes=BOXES[box], **words
    )


def _steps(start: int, events: Collection[Event], draw: random.Random) -> Iterator[_Step]:
    total = start
    for event in events:
        equations = _equations(total, event)
        assert equations is not None, "numbers were drawn so that every equation exists"
        for index, equation in enumerate(equations):
            grouped = event.kind in ("stock", "packs") and index == 0
            wording = draw.choice(STEPS["group" if grouped else equation.operation])
            yield _Step(equation, wording, wrong=event.wrong and index == 0)
        total = equations[-1].value


def _right_answer(start: int, events: Iterable[Event]) -> int:
    total = start
    for event in events:
        equations = _equations(total, replace(event, wrong=False))
        assert equations is not None, "numbers were drawn so that every equation exists"
        total = equations[-1].value
    return total


def _spans(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    start = 0
    for line in lines:
        yield start, start + len(line)
        start += len(line) + 1  # the line break belongs to no step
