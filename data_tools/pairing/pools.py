"""Samples of one problem, brought together from rows that may stand anywhere in a file."""

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from data_tools.duplicates import HashTable, digest
from data_tools.duplicates.table import temporary_database
from data_tools.equality import compare_answers
from data_tools.errors import RecordError
from data_tools.fields import answer_of, optional_response, response_of, text_of
from data_tools.pipelines.problem import is_right
from data_tools.run import Reject, Row

_MANY = {"labels": "label", "rewards": "reward", "scores": "score", "mean_logps": "mean_logp"}
COLUMNS = ("prompt", "answer", "solution", "completion", "response", "correct", *_MANY.values(), "responses", *_MANY)
"""What is read of a row."""


@dataclass(frozen=True)
class Sample:
    """A response; `right` is None where that cannot be said. `mean_logp` is per token, in nats."""

    text: str
    right: bool | None
    score: float | None = None
    mean_logp: float | None = None


@dataclass
class Pool:
    """All samples of one prompt, and what its rows say about it. `gold` is a solution that came with the problem.

    Where rows say different things, it is the least id, with its prompt, and the least solution, as texts are sorted:
    their order in the file decides nothing. `line` is that of the first.
    """

    id: str
    line: int
    prompt: Any
    asked: str
    answer: str | None
    gold: str | None
    samples: list[Sample] = field(default_factory=list)

    def texts(self, right: bool) -> list[str]:
        """The texts that are right, or wrong, each once."""
        return pool_texts(self.samples, right)


def pool_texts(samples: Iterable[Sample], right: bool) -> list[str]:
    """The texts of samples that are right, or wrong, each once."""
    return list(dict.fromkeys(sample.text for sample in samples if sample.right is right))


def pools(rows: Iterable[Row], *, threshold: float = 0.5) -> Iterator[Pool | Reject]:
    """Samples by prompt, in the order in which prompts first occur; those of one prompt are sorted by their texts.

    A row has one sample (`completion` or `response`) or several (`responses`). What is right is said by `label` (or
    `labels`), else by comparing with `answer`, else by a `reward` (or `rewards`) of at least `threshold`. Rows wait in
    temporary files; memory holds those of one prompt. Rejected are rows that cannot be used, prompts with answers that
    surely differ, and samples that are labelled both right and wrong.
    """
    with tempfile.TemporaryFile() as file:
        firsts, places = HashTable(), temporary_database(file)
        places.execute("CREATE TABLE rows (first INTEGER, offset INTEGER, PRIMARY KEY (first, offset)) WITHOUT ROWID")
        places.execute("BEGIN")
        for row in rows:
            try:
                asked = text_of(row.record, "prompt", row.where)
                line = json.dumps([row.id, row.line, row.where, row.record], ensure_ascii=False)
            except RecordError as error:
                yield Reject(error.reason, str(error), row.line, row.id)
                continue
            offset = file.tell()
            first = firsts.setdefault(digest(" ".join(asked.split())), offset)
            places.execute("INSERT INTO rows VALUES (?, ?)", (first, offset))
            file.write(line.encode() + b"\n")
        ordered = places.execute("SELECT first, offset FROM rows ORDER BY first, offset")
        for _, group in groupby(ordered, key=itemgetter(0)):
            yield from _pool((_read(file, offset) for _, offset in group), threshold)


def _read(file: Any, offset: int) -> Row:
    file.seek(offset)
    id, line, where, record = json.loads(file.readline())
    return Row(record, id, where.rpartition(":")[0], line)


def _pool(rows: Iterable[Row], threshold: float) -> Iterator[Pool | Reject]:
    used: list[Row] = []
    samples: list[Sample] = []
    golds: list[str] = []
    for row in rows:
        try:
            samples += _samples(row, threshold)
            gold = optional_response(row.record, ("solution",), row.where)
        except RecordError as error:
            yield Reject(error.reason, str(error), row.line, row.id)
            continue
        used.append(row)
        answer = answer_of(row.record, row.where)
        if gold is not None and answer is not None and is_right(gold, answer) is False:
            says = f"the solution's answer is not '{answer}', so it is no right sample"
            yield Reject("wrong_answer", says, row.line, row.id)
        elif gold is not None:
            golds.append(gold)
    if not used:
        return
    least = min(used, key=lambda row: (row.id, json.dumps(row.record["prompt"], sort_keys=True)))
    line, answers = min(row.line for row in used), _answers(used)
    other = next((answer for answer in answers if compare_answers(answers[0], answer) is False), None)
    if other is not None:
        says = f"the prompt has the answer '{answers[0]}' in one row and '{other}' in another"
        yield Reject("contradictory_answer", says, line, least.id)
        return
    asked = text_of(least.record, "prompt", least.where)
    pool = Pool(least.id, line, least.record["prompt"], asked, next(iter(answers), None), min(golds, default=None))
    both = set(pool_texts(samples, True)) & set(pool_texts(samples, False))
    for text in sorted(both):
        says = f"the same sample is labelled right and wrong: {text[:80]!r}"
        yield Reject("contradictory_label", says, line, least.id)
    pool.samples = [sample for sample in samples if sample.text not in both]
    pool.samples.sort(key=lambda sample: (sample.text, str(sample.right), sample.score or 0, sample.mean_logp or 0))
    yield pool


def _answers(rows: Iterable[Row]) -> list[str]:
    """The different answers that rows give, as text."""
    return sorted({answer.strip() for row in rows if (answer := answer_of(row.record, row.where)) is not None})


def _samples(row: Row, threshold: float) -> Iterator[Sample]:
    record = row.record
    if not isinstance(record.get("responses"), list):
        text = response_of(record, ("completion", "response"), row.where)
        yield _sample(row, text, record, threshold)
        return
    many = record["responses"]
    for name in _MANY:
        if record.get(name) is not None and (not isinstance(record[name], list) or len(record[name]) != len(many)):
            raise RecordError(f"{row.where}: '{name}' must be a list as long as 'responses'.", reason="bad_label")
    for place, text in enumerate(many):
        if not isinstance(text, str) or not text.strip():
            continue
        values = {one: record[name][place] for name, one in _MANY.items() if record.get(name) is not None}
        yield _sample(row, text, {"answer": record.get("answer"), **values}, threshold)


def _sample(row: Row, text: str, values: dict[str, Any], threshold: float) -> Sample:
    reward = _number(row, values, "reward")
    score = _number(row, values, "score")
    label = values.get("label", values.get("correct"))
    answer = answer_of(values, row.where)
    if label is not None:
        if label not in (True, False):
            raise RecordError(f"{row.where}: a label must be true or false; got {label!r}.", reason="bad_label")
        right: bool | None = bool(label)
    elif answer is not None:
        right = is_right(text, answer)
    elif reward is not None:
        right = reward >= threshold
    else:
        raise RecordError(f"{row.where}: no label, answer or reward says whether it is right.", reason="no_label")
    return Sample(text, right, reward if score is None else score, _number(row, values, "mean_logp"))


def _number(row: Row, values: dict[str, Any], name: str) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecordError(f"{row.where}: '{name}' must be a number; got {value!r}.", reason="bad_score")
    return float(value)
