"""Errors by a language model: one step is edited on request, then screened and verified like any other.

Nothing here talks to a network: a generator is any object with `generate(prompts) -> texts`.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from data_tools.answers import same_answer
from data_tools.equations import Equation, Site, Value, Verdict, find_equations, judge
from data_tools.inject.edits import Change, Edited, Replacement, Span, edit
from data_tools.inject.item import Injection, Mode, SolutionItem, Verified
from data_tools.inject.propagate import chain
from data_tools.inject.screen import Filters, reveals
from data_tools.steps.split import sentences

OFFERED_SENTENCES = 4
"""How much of a long step is offered for editing, counted from its end."""

INSTRUCTIONS: Mapping[str, str] = {
    "one_value": "Change exactly one number so that the statement becomes false. Leave every other character as it is.",
    "related_values": "Change one number, and with it the numbers that are computed from it in this passage, so that "
    "the passage agrees with itself but not with the problem.",
    "substitution": "Use a number of the problem where another one belongs, and compute on with it.",
    "deletion": "Leave out one term or factor of a calculation, and compute on without it.",
    "symbol": "Replace one arithmetic sign by another, and compute on with it.",
    "swap": "Let two numbers of a calculation change places, and compute on.",
    "wording": "Misread the problem in one phrase, and reword the passage accordingly.",
}
"""What is asked for, by kind of edit."""

_PROMPT = """Problem:
{problem}

Solution so far:
{before}

The next passage of the solution is
```
{passage}
```

Edit this passage. {instruction} Keep its length and its tone. Write nothing that hints at the edit. \
Answer with the edited passage alone, between lines of three backticks.

The edited passage:
```
"""
_FENCE = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)


class TextGenerator(Protocol):
    """Whatever continues texts: a recording, a local model, a server."""

    def generate(self, prompts: Sequence[str]) -> Sequence[str]:
        """One continuation for each prompt, in order."""
        ...


@dataclass(frozen=True)
class ModelInjector:
    """Asks for one edit of one step, for up to `attempts` steps of a solution, all in one call.

    An edit counts as verified when the edited step, read afresh, has an equation that is false or has another result
    than the original. Others are given back only with `unverified`, for a judge to look at. In modes `suffix` and
    `full` the other result is carried to the final answer by rule, and edits that cannot be carried are left out.
    """

    generator: TextGenerator
    mode: Mode = "step"
    attempts: int = 2
    pairs: int = 1
    unverified: bool = False
    filters: Filters = field(default_factory=lambda: Filters(plausible=False))

    name: ClassVar[str] = "model"
    version: ClassVar[int] = 1

    def inject(self, item: SolutionItem, rng: random.Random) -> list[Injection]:
        """Up to `pairs` errors of one solution."""
        numbers = rng.sample(range(1, len(item.steps) + 1), min(self.attempts, len(item.steps)))
        asked = [(number, rng.choice(edit_kinds(item.steps.body(number)))) for number in numbers]
        passages = [passage_of(item.steps.body(number)) for number in numbers]
        prompts = [
            edit_prompt(item, number, passage, kind) for (number, kind), passage in zip(asked, passages, strict=True)
        ]
        replies = self.generator.generate(prompts)
        made = (
            self._injection(item, number, kind, passage, reply)
            for (number, kind), passage, reply in zip(asked, passages, replies, strict=True)
        )
        return [injection for injection in made if injection is not None][: self.pairs]

    def _injection(self, item: SolutionItem, number: int, kind: str, passage: str, reply: str) -> Injection | None:
        edited_passage = parse_reply(reply)
        old = item.steps.body(number)
        if edited_passage is None:
            return None
        new = old[: len(old) - len(passage)] + edited_passage
        if not self.filters.close(old, new) or reveals(item.prompt, new):
            return None
        difference = _difference(old, new)
        found = _new_result(find_equations(old), find_equations(new))
        if self.mode == "step":
            if found is None and not self.unverified:
                return None
            values = (str(found[1]), str(found[2])) if found else ("", "")
            verified: Verified = "equation" if found else "none"
            return Injection(
                number,
                kind,
                new,
                None,
                *difference,
                *values,
                verified=verified,
            )
        return None if found is None else self._carried(item, number, kind, new, found)

    def _carried(
        self, item: SolutionItem, number: int, kind: str, new: str, found: tuple[Site, Value, Value]
    ) -> Injection | None:
        """The edit with everything that follows from it behind the step."""
        site, before, after = found
        step, text, background = item.steps[number], item.steps.text, item.background
        there = next(
            (s for s in item.reading(number).sites if s.value == before and s.start - step.body == site.start), None
        )
        if there is None:
            return None
        change = Change((), before, after)
        carried = chain(
            text,
            item.reading_from(number),
            there,
            change,
            protected=background.protected,
            style=background.style,
            answer=background.answer,
        )
        if carried is None or carried.answer is None or same_answer(str(carried.answer), item.answer):
            return None
        later = [replacement for replacement in carried.replacements if replacement.start >= step.end]
        edited: Edited = edit(text, [Replacement(step.body, step.end, new), *later], step.body)
        return Injection(
            number,
            kind,
            new,
            edited.text,
            edited.spans_old,
            edited.spans_new,
            str(before),
            str(after),
            str(carried.answer),
            "answer",
        )


def edit_kinds(step: str) -> list[str]:
    """The edits that a step can be asked for: by how many numbers it has, and whether it has an equation."""
    numbers = len(re.findall(r"\d+(?:\.\d+)?", step))
    kinds = ["related_values"] if numbers > 1 else ["one_value"] if numbers == 1 else []
    if "=" in step:
        kinds += ["substitution", "deletion", "symbol", "swap"]
    return kinds or ["wording"]


def edit_prompt(item: SolutionItem, number: int, passage: str, kind: str) -> str:
    """The request for one edit. It ends in an opened fence, so that the reply begins with the passage."""
    before = item.steps.prefix(number) + item.steps.body(number).removesuffix(passage)
    return _PROMPT.format(
        problem=item.prompt, before=before.strip() or "(nothing)", passage=passage, instruction=INSTRUCTIONS[kind]
    )


def passage_of(step: str) -> str:
    """The last sentences of a step."""
    found = sentences(step)
    return step if len(found) <= OFFERED_SENTENCES else step[found[-OFFERED_SENTENCES].start :]


def parse_reply(reply: str) -> str | None:
    """The edited passage: the first fenced block, or the text up to the closing fence of the prompt's own."""
    fenced = _FENCE.search(reply)
    if fenced:
        return fenced[1].strip("\n") or None
    passage, fence, _ = reply.partition("```")
    return (passage.strip("\n") or None) if fence else None


def _new_result(old: Sequence[Equation], new: Sequence[Equation]) -> tuple[Site, Value, Value] | None:
    """The first true equation that became false or got another result, with both results; None if there is none."""
    if len(old) != len(new):
        return None
    for before, after in zip(old, new, strict=True):
        if before.site is None:
            continue
        value = after.sides[-1].value
        verdict = judge(after)
        changed = value != before.site.value or verdict is Verdict.FALSE
        if value is not None and verdict is not Verdict.UNKNOWN and changed:
            return before.site, before.site.value, value
    return None


def _difference(old: str, new: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """The span between the common beginning and the common end."""
    front = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    back = 0
    while back < min(len(old), len(new)) - front and old[-1 - back] == new[-1 - back]:
        back += 1
    return ((front, len(old) - back),), ((front, len(new) - back),)
