"""`prefopt data inject`: right solutions in, pairs of a right and a wrong text out."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from data_tools.annotations import without_annotations
from data_tools.answers import final_answer
from data_tools.command import Options, RunInfo, record_command
from data_tools.errors import DataToolsError, RecordError
from data_tools.fields import answer_of, response_of, text_of
from data_tools.inject import (
    KINDS,
    Balance,
    CodeInjector,
    Filters,
    RuleInjector,
    SolutionItem,
    build_pair,
    provenance,
    row_random,
)
from data_tools.pipelines.problem import is_right
from data_tools.run import Output, RecordFunction, Reject, Row
from data_tools.steps import Step, StepError, Steps, split_steps

OF_TEXT = (
    *("splitter", "kind", "kind_weight", "step_weights", "prose"),
    *("min_similarity", "min_length_ratio", "max_length_ratio", "plausible"),
)
"""Options that say nothing about programs."""
COLUMNS = ("prompt", "solution", "completion", "answer", "tests")
MAX_SOLUTION = 100_000
"""Characters. Longer texts are no solutions in steps."""
MAX_STEPS = 400
"""More than a solution has; to carry an error through them takes time that grows with the square of their number."""
MAX_STEP = 10_000
"""Characters. The same holds for the terms of one step."""


class InjectOptions(Options):
    """What errors are made, where, and which are kept."""

    mode: Literal["step", "suffix", "full"] = Field(
        "step", description="pairs of one step, of everything from a step on, or of whole solutions"
    )
    domain: Literal["text", "code"] = Field(
        "text", description="solutions with equations, or Python programs with `tests` (mode full)"
    )
    splitter: Literal["auto", "numbered", "paragraph", "line", "sentence", "code"] = Field(
        "auto", description="how solutions are split into steps"
    )
    kind: list[str] = Field(default_factory=list, description="kinds of errors; all that can be verified, if not given")
    kind_weight: list[str] = Field(default_factory=list, description="KIND=WEIGHT, in place of the kinds' own weights")
    step_weights: Literal["uniform", "early", "late"] = Field("uniform", description="which steps are drawn more often")
    pairs: int = Field(1, ge=1, le=100, description="most pairs of one solution")
    prose: bool = Field(False, description="carry new values also into numbers outside of equations")
    min_similarity: float = Field(0.8, ge=0, le=1, description="least similarity of right and wrong step, 1 is equal")
    min_length_ratio: float = Field(0.7, gt=0, le=1, description="shortest wrong step, as a share of the right one")
    max_length_ratio: float = Field(1.3, ge=1, description="longest wrong step, as a share of the right one")
    plausible: bool = Field(True, description="only edits that look like right equations")


@record_command(
    InjectOptions, tally=("error_kind", "verified", "annotations_removed"), reads=lambda options: COLUMNS, distinct=True
)
def inject(options: InjectOptions, run: RunInfo) -> RecordFunction:
    """Put one error into right solutions: pairs for preference training, with no model.

    Records have `prompt`, `solution` (or `completion`) and `answer`, and perhaps `id`. Every wrong text is proven wrong
    by computing its equations, every wrong program by a test that fails; what cannot be proven is not written.
    Calculator annotations (`<<48/2=24>>`) are taken out of a solution first, so neither text of a pair has them.
    """
    if options.domain == "code":
        return _programs(options, run)
    injector = RuleInjector(
        mode=options.mode,
        kinds=tuple(options.kind) or tuple(KINDS),
        kind_weights=_weights(options.kind_weight),
        step_weights=options.step_weights,
        pairs=options.pairs,
        prose=options.prose,
        filters=Filters(options.min_similarity, options.min_length_ratio, options.max_length_ratio, options.plausible),
        balance=Balance() if options.plausible else Balance({}),
    )
    source = provenance(injector.name, injector.version, run.seed)

    def pairs(row: Row) -> Iterator[Output]:
        item, removed = solution_item(row, options.splitter)
        if item.answer is not None and not _states(item.steps.text, item.answer):
            raise RecordError(f"{row.where}: the solution's answer is not '{item.answer}'.", reason="wrong_answer")
        found = injector.inject(item, row_random(run.seed, item.id, "inject"))
        if not found:
            yield Reject("no_verified_error", "no step has an equation that takes a provable, plausible error")
        for number, injection in enumerate(found):
            pair = build_pair(item, injection, options.mode, number=number, prompt=row.record["prompt"])
            yield {**pair, **source, **({"annotations_removed": removed} if removed else {})}

    return pairs


def _programs(options: InjectOptions, run: RunInfo) -> RecordFunction:
    if options.mode != "full":
        raise DataToolsError("--domain code makes pairs of whole programs: give --mode full.")
    for name in OF_TEXT:
        if getattr(options, name) != InjectOptions.model_fields[name].get_default(call_default_factory=True):
            raise DataToolsError(f"--{name.replace('_', '-')} is for solutions with equations, not for --domain code.")

    def pairs(row: Row) -> Iterator[Output]:
        tests = row.record.get("tests")
        tests = [tests] if isinstance(tests, str) else tests
        if not isinstance(tests, list) or not tests or not all(isinstance(test, str) for test in tests):
            raise RecordError(f"{row.where}: column 'tests' must be a text or a list of texts.", reason="no_tests")
        text = response_of(row.record, ("solution", "completion"), row.where)
        item = SolutionItem(row.id, text_of(row.record, "prompt", row.where), Steps(text, (Step(0, 0, len(text)),)))
        injector = CodeInjector(tests, pairs=options.pairs)
        found = injector.inject(item, row_random(run.seed, item.id, "inject"))
        if not found:
            yield Reject("no_verified_error", "the tests fail anyway, or no change gives a wrong result")
        source = provenance(injector.name, injector.version, run.seed)
        for number, injection in enumerate(found):
            yield {**build_pair(item, injection, "full", number=number, prompt=row.record["prompt"]), **source}

    return pairs


def solution_item(row: Row, splitter: str) -> tuple[SolutionItem, int]:
    """A record as a solution in steps, and how many annotations were taken out of it.

    Raises: `RecordError` for a record that is none.
    """
    solution, removed = without_annotations(response_of(row.record, ("solution", "completion"), row.where))
    if len(solution) > MAX_SOLUTION:
        raise RecordError(f"{row.where}: the solution has over {MAX_SOLUTION:,} characters.", reason="too_long")
    try:
        steps = split_steps(solution, splitter)
    except StepError as error:
        raise RecordError(f"{row.where}: {error}", reason="no_steps") from error
    if not len(steps):
        raise RecordError(f"{row.where}: the solution has no steps for splitter '{splitter}'.", reason="no_steps")
    if len(steps) > MAX_STEPS:
        raise RecordError(f"{row.where}: the solution has over {MAX_STEPS} steps.", reason="too_long")
    if len(solution) > MAX_STEP and any(step.end - step.start > MAX_STEP for step in steps.steps):
        raise RecordError(f"{row.where}: a step has over {MAX_STEP:,} characters.", reason="too_long")
    prompt, answer = text_of(row.record, "prompt", row.where), answer_of(row.record, row.where)
    return SolutionItem(row.id, prompt, steps, answer), removed


def _states(solution: str, answer: str) -> bool:
    """Whether a solution ends in the given answer, or states none."""
    if solution.endswith(f"#### {answer}"):  # the usual case
        return True
    return final_answer(solution) is None or is_right(solution, answer) is True


def _weights(given: list[str]) -> dict[str, float]:
    weights = {}
    for pair in given:
        kind, _, weight = pair.partition("=")
        try:
            weights[kind] = float(weight)
        except ValueError:
            raise DataToolsError(f"--kind-weight must be KIND=NUMBER; got '{pair}'.") from None
        if not 0 <= weights[kind] < float("inf"):
            raise DataToolsError(f"--kind-weight must be 0 or above and finite; got '{pair}'.")
    return weights
