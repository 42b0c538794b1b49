"""`prefopt data label`: steps, and the first wrong one, for rows that have neither."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from data_tools.annotations import blanked_annotations
from data_tools.command import Options, RunInfo, record_command
from data_tools.errors import RecordError
from data_tools.fields import response_of
from data_tools.run import Output, RecordFunction, Reject, Row
from data_tools.steps import FirstWrong, StepError, Steps, first_wrong_step, split_steps

MAX_TEXT = 1_000_000
_RESPONSES = ("chosen", "rejected", "solution", "completion")


class LabelOptions(Options):
    """What is labelled, and how steps are found."""

    splitter: Literal["auto", "numbered", "paragraph", "line", "sentence", "code"] = Field(
        "auto", description="how texts are split into steps"
    )
    keep: Literal["all", "found"] = Field(
        "all", description="also rows without a false equation, or only those with one"
    )
    replace: bool = Field(False, description="put labels also in place of those that a row has already")


LABELS = ("first_error_step", "false_equation", "equations_checked")
COLUMNS = (*_RESPONSES, "initial_reason_steps", "prefix", *(f"{name}_steps" for name in _RESPONSES), *LABELS)


@record_command(LabelOptions, tally=("first_error_step",), reads=lambda options: COLUMNS)
def label(options: LabelOptions, run: RunInfo) -> RecordFunction:
    """Add step spans and the first step with a false equation.

    Every text among `chosen`, `rejected`, `solution`, `completion` gets its spans in `..._steps`. `first_error_step`
    is that of `rejected`, or of the row's only text, and counts its steps from 1; a common beginning
    (`initial_reason_steps`) is not counted. It is null where no equation is surely false, which does not mean that the
    text is right. `equations_checked` says how many were decided. Calculator annotations (`<<48/2=24>>`) are not
    checked; the texts and the places in them stay as they are.
    """

    def rows(row: Row) -> Iterator[Output]:
        names = [name for name in _RESPONSES if row.record.get(name) is not None]
        if not names:
            raise RecordError(f"{row.where}: none of {', '.join(_RESPONSES)} is there.", reason="missing_column")
        prefix = row.record.get("initial_reason_steps") or row.record.get("prefix") or ""
        if not isinstance(prefix, str):
            raise RecordError(f"{row.where}: column 'initial_reason_steps' must be text.", reason="no_text")
        labels: dict[str, object] = {}
        found: FirstWrong | None = None
        for name in names:
            text = response_of(row.record, name, row.where)
            steps = _behind(_split(prefix + text, options.splitter, row.where), len(prefix))
            labels[f"{name}_steps"] = [[max(s.start - len(prefix), 0), s.end - len(prefix)] for s in steps.steps]
            if name == "rejected" or len(names) == 1:
                found = first_wrong_step(steps)
        if found is not None:
            labels |= {"first_error_step": found.step, "false_equation": " ".join(found.equation.split()) or None}
            labels["equations_checked"] = found.checked
        if options.keep == "found" and (found is None or found.step is None):
            yield Reject("no_false_equation")
            return
        known = (
            {} if options.replace else {name: row.record[name] for name in labels if row.record.get(name) is not None}
        )
        yield {**row.record, **labels, **known}

    return rows


def _split(text: str, splitter: str, where: str) -> Steps:
    if len(text) > MAX_TEXT:
        raise RecordError(f"{where}: a text has over {MAX_TEXT:,} characters.", reason="too_long")
    try:
        return split_steps(blanked_annotations(text), splitter)
    except StepError as error:
        raise RecordError(f"{where}: {error}", reason="no_steps") from error


def _behind(steps: Steps, begin: int) -> Steps:
    """The steps that reach into the text behind a beginning."""
    return Steps(steps.text, tuple(step for step in steps.steps if step.end > begin))
