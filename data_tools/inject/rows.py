"""Injected errors as rows of preference data."""

from collections.abc import Mapping
from typing import Any

from data_tools.inject.edits import Span
from data_tools.inject.item import Injection, Mode, SolutionItem
from data_tools.records import Record


def build_pair(item: SolutionItem, injection: Injection, mode: Mode, *, number: int = 0, prompt: Any = None) -> Record:
    """One row: the right text as `chosen`, the text with the error as `rejected`.

    In mode `step` both continue a right beginning by one step, in `suffix` to the end, and in `full` both are whole
    solutions. Beginning and right text are cut out of the solution and joined give it back, character by character.
    `first_error_step` counts the steps of `rejected`, `solution_step` those of the solution, both from 1. `number`
    counts the pairs of one solution; `prompt` replaces the item's text where the source has messages.
    """
    steps = item.steps
    step = steps[injection.step]
    whole = mode == "full"
    begin = 0 if whole else step.body
    end = step.end if mode == "step" else len(steps.text)
    chosen = steps.text[begin:end]
    wrong = injection.edited_step if mode == "step" else injection.edited_tail
    assert wrong is not None, "modes suffix and full come with an edited tail"
    rejected = steps.text[: step.body] + wrong if whole else wrong
    shift = step.body - begin
    old = [(a + shift, b + shift) for a, b in injection.spans_old]
    new = [(a + shift, b + shift) for a, b in injection.spans_new]
    spans = [(0, len(chosen))] if mode == "step" else _step_spans(item, injection.step, begin)
    return {
        "id": f"{item.id}#{mode}-{number}",
        "source_id": item.id,
        "prompt": item.prompt if prompt is None else prompt,
        "initial_reason_steps": steps.text[:begin],
        "chosen": chosen,
        "rejected": rejected,
        "complete": end == len(steps.text),
        "answer": item.answer,
        "rejected_answer": injection.answer_after,
        "first_error_step": injection.step if whole else 1,
        "solution_step": injection.step,
        "chosen_steps": [list(span) for span in spans],
        "rejected_steps": [[0, len(rejected)]] if mode == "step" else _moved(spans, old, new),
        "diff_spans_chosen": [list(span) for span in old],
        "diff_spans_rejected": [list(span) for span in new],
        "pair_kind": mode,
        "error_kind": injection.kind,
        "verified": injection.verified,
        "old_value": injection.old_value,
        "new_value": injection.new_value,
    }


def provenance(injector: str, version: int, seed: int) -> Mapping[str, Any]:
    """The columns that say where a row comes from."""
    return {"injector": injector, "injector_version": version, "seed": seed}


def _step_spans(item: SolutionItem, first: int, begin: int) -> list[Span]:
    """Spans of the steps in the text from `begin` on, markers included except that of a step that begins before."""
    steps = item.steps.steps if begin == 0 else item.steps.steps[first - 1 :]
    return [(max(step.start - begin, 0), step.end - begin) for step in steps]


def _moved(spans: list[Span], old: list[Span], new: list[Span]) -> list[list[int]]:
    """The spans after the edit; no edit crosses the border of a step."""
    changes = [(a[1], (b[1] - b[0]) - (a[1] - a[0])) for a, b in zip(old, new, strict=True)]
    return [[at + sum(grown for end, grown in changes if end <= at) for at in span] for span in spans]
