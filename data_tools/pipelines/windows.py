"""Problems worked on some at a time, so that a model is asked much at once and memory stays bounded."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from data_tools.command import RunInfo
from data_tools.errors import RecordError
from data_tools.pipelines.problem import Problem, read_problem
from data_tools.run import Output, Reject, Row

Pipeline = Callable[[Sequence[Problem]], list[list[Output]]]
"""Problems in, what becomes of each out."""


def through(
    pipeline: Pipeline, rows: Iterable[Row], run: RunInfo, *, window: int, instruction: str = ""
) -> Iterator[Output]:
    """The outputs of all records in their order. Raises: `RecordError` for a record that is no problem, if strict."""
    rows = iter(rows)
    while taken := list(islice(rows, window)):
        outputs: list[list[Output]] = [[] for _ in taken]
        problems: dict[int, Problem] = {}
        for place, row in enumerate(taken):
            try:
                problems[place] = read_problem(row, instruction=instruction)
            except RecordError as error:
                if run.strict:
                    raise
                outputs[place].append(Reject(error.reason, str(error), row.line, row.id))
        for place, found in zip(problems, pipeline(list(problems.values())), strict=True):
            outputs[place] += found
        for output in outputs:
            yield from output
