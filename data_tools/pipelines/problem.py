"""The problems that a pipeline starts from, and how a sample is held against their answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from data_tools.answers import final_answer, same_answer
from data_tools.equality import compare_answers
from data_tools.errors import RecordError
from data_tools.extraction import extract_answer
from data_tools.fields import answer_of, optional_response, text_of
from data_tools.generators import GenFailure, GenReply
from data_tools.run import Reject, Row

_SOLUTIONS = ("solution", "completion", "chosen")
COLUMNS = ("prompt", "answer", *_SOLUTIONS)
"""What is read of a record."""


@dataclass(frozen=True)
class Problem:
    """A record with a prompt and a right answer. `asked` is the prompt as the model gets it."""

    id: str
    line: int
    where: str
    prompt: Any
    asked: Any
    text: str
    answer: str
    solution: str | None
    record: Mapping[str, Any]

    def reject(self, reason: str, detail: str = "") -> Reject:
        """This problem, or something of it, in the reject log."""
        return Reject(reason, detail, line=self.line, id=self.id)


def read_problem(row: Row, *, instruction: str = "") -> Problem:
    """A record as a problem. Without `answer`, its solution says what is right.

    Raises: `RecordError` for a record that has neither, or no prompt.
    """
    text = text_of(row.record, "prompt", row.where)
    solution = optional_response(row.record, _SOLUTIONS, row.where)
    answer = answer_of(row.record, row.where) or (extract_answer(solution) if solution else None)
    if answer is None:
        raise RecordError(f"{row.where}: column 'answer' is missing, and no solution states one.", reason="no_answer")
    prompt = row.record["prompt"]
    return Problem(
        row.id, row.line, row.where, prompt, _instructed(prompt, instruction), text, answer, solution, row.record
    )


def is_right(text: str, answer: str, *, abs_tol: float | None = None) -> bool | None:
    """Whether a solution ends in the right answer; None where it states none, or none that can be compared."""
    stated = final_answer(text)
    if stated is not None and same_answer(stated, answer):  # plain numbers, the usual case
        return True
    return compare_answers(extract_answer(text), answer, abs_tol=abs_tol)


def why_none(reply: GenReply) -> GenFailure:
    """Why a request had no answer at all."""
    return reply.failures[0] if reply.failures else GenFailure("no_answer")


def _instructed(prompt: Any, instruction: str) -> Any:
    """The prompt with an instruction behind its last words."""
    if not instruction:
        return prompt
    if isinstance(prompt, str):
        return f"{prompt}\n{instruction}"
    return [*prompt[:-1], {**prompt[-1], "content": f"{prompt[-1]['content']}\n{instruction}"}]
