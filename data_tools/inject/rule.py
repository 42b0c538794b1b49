"""Errors by rule: found, made, carried forward and verified without a model."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from data_tools.answers import same_answer
from data_tools.equations import Reading, Site, Token, is_denied
from data_tools.inject.balance import Balance, Proposal, Shown
from data_tools.inject.changes import Scene
from data_tools.inject.edits import Change, Edited, edit
from data_tools.inject.item import Injection, Mode, SolutionItem, Verified
from data_tools.inject.kinds import KINDS, UNCHECKED
from data_tools.inject.order import attempts
from data_tools.inject.propagate import Carried, chain
from data_tools.inject.screen import Filters, proven_wrong, reveals
from data_tools.inject.words import dropped_step, relation
from data_tools.records import DataToolsError

STEP_WEIGHTS = ("uniform", "early", "late")


@dataclass(frozen=True)
class RuleInjector:
    """Draws a kind, a step and its parameters until an edit is verified and passes the filters.

    The kind is drawn by `kind_weights`, which replace the kinds' own: what few solutions can take comes first as a
    rule, so that kinds are made as evenly as can be. The step is drawn by `step_weights` among those with a true
    equation. Of the edits that pass, `balance` keeps as many as leave right and wrong looking alike.

    In mode `step` the error is carried to the end of its step, in `suffix` and `full` to the final answer, which must
    then be another. `kinds` of errors in words have no proof and count as verified "none".
    """

    mode: Mode = "step"
    kinds: Sequence[str] = tuple(KINDS)
    kind_weights: Mapping[str, float] = field(default_factory=dict)
    step_weights: str = "uniform"
    pairs: int = 1
    prose: bool = False
    filters: Filters = field(default_factory=Filters)
    balance: Balance = field(default_factory=Balance)

    name: ClassVar[str] = "rule"
    version: ClassVar[int] = 3

    def __post_init__(self) -> None:
        known = (*KINDS, *UNCHECKED)
        for kind in (*self.kinds, *self.kind_weights):
            if kind not in known:
                raise DataToolsError(f"there is no kind '{kind}' of errors. Kinds: {', '.join(known)}.")
        if self.step_weights not in STEP_WEIGHTS:
            raise DataToolsError(f"step weights are one of {', '.join(STEP_WEIGHTS)}; got '{self.step_weights}'.")
        words = [kind for kind in self.kinds if kind in UNCHECKED]
        if words and self.mode != "step":
            raise DataToolsError(f"'{words[0]}' leaves the answer as it is and is only made in mode step.")

    def inject(self, item: SolutionItem, rng: random.Random) -> list[Injection]:
        """Up to `pairs` different errors of one solution."""
        found: dict[str, Injection] = {}
        for _ in range(self.pairs):
            for injection in self._candidates(item, rng):
                if injection.edited_step not in found and self._usable(item, injection):
                    found[injection.edited_step] = injection
                    break
        return list(found.values())

    def _usable(self, item: SolutionItem, injection: Injection) -> bool:
        """What only the winner is asked: no giveaway words, and no false equation in front of the error."""
        if reveals(item.prompt, injection.edited_tail or injection.edited_step):
            return False
        return not any(item.is_false(number) for number in range(1, injection.step))

    def _candidates(self, item: SolutionItem, rng: random.Random) -> Iterator[Injection]:
        order = self._step_order(len(item.steps), rng)
        for kind, number in attempts(item, self._kind_order(rng), order, plausible=self.filters.plausible):
            if kind in UNCHECKED:
                injection = None if item.is_false(number) else self._in_words(item, number, kind)
            else:
                injection = self._in_some_equation(item, number, kind, rng)
            if injection is not None:
                yield injection

    def _step_order(self, count: int, rng: random.Random) -> list[int]:
        numbers = list(range(1, count + 1))
        if self.step_weights == "uniform":
            rng.shuffle(numbers)
            return numbers
        weights = {k: float(k if self.step_weights == "late" else count + 1 - k) for k in numbers}
        return sorted(numbers, key=lambda k: rng.random() ** (1 / weights[k]), reverse=True)

    def _kind_order(self, rng: random.Random) -> list[str]:
        """The kinds in random order, each drawn by its weight among those that are left."""
        draws = sorted([(rng.random() ** power, kind) for power, kind in self._powers], reverse=True)
        return [kind for _, kind in draws]

    @cached_property
    def _powers(self) -> list[tuple[float, str]]:
        default = {kind: KINDS[kind].weight if kind in KINDS else 1.0 for kind in self.kinds}
        return [(1 / weight, kind) for kind, weight in {**default, **self.kind_weights}.items() if weight > 0]

    # -------------------------------------------------------------------------------------------- equations

    def _in_some_equation(self, item: SolutionItem, number: int, kind: str, rng: random.Random) -> Injection | None:
        scenes, least = item.scenes(number, plausible=self.filters.plausible), KINDS[kind].tokens
        if least > 3:
            scenes = [place for place in scenes if len(place[1].tokens) >= least]
        return self._in_equation(item, number, rng.choice(scenes), kind, rng) if scenes else None

    def _in_equation(
        self,
        item: SolutionItem,
        number: int,
        place: tuple[int, Scene],
        kind: str,
        rng: random.Random,
    ) -> Injection | None:
        at, scene = place
        site = scene.site
        if KINDS[kind].others:
            scene = Scene(site, scene.background, scene.step, item.known_before(number), scene.plausible)
        params = KINDS[kind].draw(scene, rng)
        if params is None:
            return None
        change = KINDS[kind].apply(scene, params)
        if change is None or not self.filters.believable({change.old: change.new}, item.background):
            return None
        proposal = Proposal(scene, params, change, change.replacements, self._shown(item, number))
        if self.mode == "step" and not self.balance.keeps(self.mode, kind, proposal, rng):
            return None
        reading = item.reading(number)
        edited_step = self._step_edit(item, number, reading, site, change)
        if edited_step is None or not self.filters.close(scene.step, edited_step.text, edited_step.distance):
            return None
        if not proven_wrong(reading.equations, edited_step.text, at, visible=change.visible):
            return None
        if is_denied(item.steps.text, reading.equations[at]):
            return None  # in "not 5 * 3 = 15" another result is denied rightly
        made = _made(number, kind, change, dict(params))
        if self.mode == "step":
            return made(edited_step.text, None, edited_step, None, "equation")
        begin = item.steps[number].body
        tail = self._carried(item, site, change, item.reading_from(number), item.background.answer)
        answer = tail and tail.answer
        if tail is None or answer is None or same_answer(_printed(answer), item.answer):
            return None
        if not self.balance.keeps(self.mode, kind, proposal._replace(replacements=tail.replacements), rng):
            return None
        edited = edit(item.steps.text, tail.replacements, begin)
        length = len(edited_step.text)
        return made(edited.text[:length], edited.text, edited, _printed(answer), "answer")

    def _shown(self, item: SolutionItem, number: int) -> Shown:
        """The part of the solution that a pair with an error in this step shows."""
        step, text = item.steps[number], item.steps.text
        begin = 0 if self.mode == "full" else step.body
        return Shown(text, begin, step.end if self.mode == "step" else len(text))

    def _step_edit(
        self, item: SolutionItem, number: int, reading: Reading, site: Site, change: Change
    ) -> Edited | None:
        """The step with its error, carried to the end of the step where that needs no guess."""
        step, text = item.steps[number], item.steps.text
        answer = item.background.answer if _states_answer(item, number) else None
        if answer is None and reading.equations[-1].site is site and not self.prose:  # nothing follows
            return edit(text, change.replacements, step.body, step.end)
        carried = self._carried(item, site, change, reading, answer)
        if carried is not None:
            return edit(text, carried.replacements, step.body, step.end)
        if answer is not None and answer.value == change.old:
            return None  # a result that contradicts the answer right behind it would give the error away
        return edit(text, change.replacements, step.body, step.end) if self.mode == "step" else None

    def _carried(
        self, item: SolutionItem, site: Site, change: Change, reading: Reading, answer: Token | None
    ) -> Carried | None:
        background = item.background
        carried = chain(
            item.steps.text,
            reading,
            site,
            change,
            protected=background.protected,
            style=background.style,
            answer=answer,
            prose=self.prose,
        )
        return carried if carried and self.filters.believable(carried.values, background) else None

    # -------------------------------------------------------------------------------------------- words

    def _in_words(self, item: SolutionItem, number: int, kind: str) -> Injection | None:
        body = item.steps.body(number)
        if kind == "relation_flip":
            found = relation(body)
            if found is None:
                return None
            start, end, opposite = found
            edited = body[:start] + opposite + body[end:]
            if not self.filters.close(body, edited):
                return None
            spans = ((start, end),), ((start, start + len(opposite)),)
            return Injection(number, kind, edited, None, *spans, body[start:end], opposite)
        if number == len(item.steps) or not _is_used(item, number) or dropped_step(item.steps, number) is None:
            return None
        edited = item.steps.body(number + 1)  # another step, which need not resemble this one
        if body.split() == edited.split() or not self.filters.comparable(body, edited):
            return None
        return Injection(number, kind, edited, None, ((0, len(body)),), ((0, len(edited)),))


def _states_answer(item: SolutionItem, number: int) -> bool:
    """Whether the final answer stands in a step."""
    if number < len(item.steps) or "####" in item.steps.footer:
        return False
    answer = item.background.answer
    return answer is not None and item.steps[number].body <= answer.start < item.steps[number].end


def _is_used(item: SolutionItem, number: int) -> bool:
    """Whether a later step computes with a result of this one."""
    values = {site.value for site in item.reading(number).sites}
    later = (item.reading(k).equations for k in range(number + 1, len(item.steps) + 1))
    return any(t.value in values for equations in later for e in equations for side in e.sides for t in side.numbers)


def _printed(value: object) -> str:
    return str(value)


class _made:
    """An injection that lacks what depends on the mode."""

    def __init__(self, number: int, kind: str, change: Change, params: dict[str, object]) -> None:
        self.number, self.kind, self.change = number, kind, change
        self.meta = {"params": {name: str(value) for name, value in params.items()}, "visible": change.visible}

    def __call__(
        self, step: str, tail: str | None, edited: Edited, answer: str | None, verified: Verified
    ) -> Injection:
        old, new = _printed(self.change.old), _printed(self.change.new)
        return Injection(
            self.number,
            self.kind,
            step,
            tail,
            edited.spans_old,
            edited.spans_new,
            old,
            new,
            answer,
            verified,
            self.meta,
        )
