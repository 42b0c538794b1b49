"""Whether the data can be what the loss reads: files that exist, columns that are there, how many responses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from prefopt.config.paths import short
from prefopt.config.peek import Peek, peek, row_count
from prefopt.config.sections import DataSection, EvaluationSection, SourceSection
from prefopt.config.training import value_of
from prefopt.config.written import Written
from prefopt.data.readers import TEXT_FORMATS
from prefopt.data.rows import ALIASES, NEEDED, READ_COLUMNS
from prefopt.errors import DataError, Problem, did_you_mean
from prefopt.losses import Objective, loss_names, loss_spec
from prefopt.params import KeyPath

_COLUMNS = (*READ_COLUMNS, *ALIASES)


def sources(data: DataSection) -> Iterator[tuple[KeyPath, SourceSection]]:
    """Every source with its place, training first."""
    yield from ((("data", "train", number), source) for number, source in enumerate(data.train))
    yield from ((("data", "eval", name), source) for name, source in data.eval.items())


@cache
def _peek(path: str, modified: float) -> Peek | DataError | None:
    try:
        return peek(Path(path))
    except DataError as error:
        return error


def _first_records(source: SourceSection) -> Peek | DataError | None:
    """The first records as they are, what is wrong with the file, or None when nothing can be said."""
    path = Path(source.path)
    return _peek(source.path, path.stat().st_mtime) if path.is_absolute() and path.is_file() else None


def _seen(source: SourceSection) -> Peek | None:
    """The first records under our names."""
    records = _first_records(source)
    return records.renamed(source.columns) if isinstance(records, Peek) else None


def sources_exist(data: DataSection) -> Iterator[Problem]:
    for where, source in sources(data):
        path, name = Path(source.path), ".".join(map(str, where[:2] if where[1] == "train" else where))
        if not path.is_absolute():
            if source.split is None:
                text = f"{name}: '{source.path}' is no file here; if it is a hub data set, say which `split`."
                yield Problem(text, (*where, "path"))
        elif path.is_file():
            for text in _wrong_file(source, path):
                yield Problem(f"{name}: {text}", (*where, "path"))
        elif not path.exists() and not _matches(path):
            known = [item.name for item in path.parent.iterdir()] if path.parent.is_dir() else []
            text = f"{name}: there is no file {short(path)}.{did_you_mean(path.name, known)}"
            yield Problem(text, (*where, "path"))


def _matches(path: Path) -> bool:
    """Parquet files may be named by a pattern."""
    return path.suffix == ".parquet" and "*" in path.name and any(path.parent.glob(path.name))


def _wrong_file(source: SourceSection, path: Path) -> Iterator[str]:
    if path.suffix not in (*TEXT_FORMATS, ".parquet"):
        yield f"{short(path)} cannot be read; a file must end in {', '.join(TEXT_FORMATS)} or .parquet."
    for option in ("name", "revision") if path.suffix == ".parquet" else ("split", "name", "revision"):
        if getattr(source, option) is not None:
            yield f"{option} is read for data sets only; {short(path)} is a file."
    records = _first_records(source)
    if isinstance(records, DataError):
        yield str(records)


def evaluation_sets_are_named(data: DataSection) -> Iterator[Problem]:
    if "path" in data.eval:
        yield Problem("data.eval holds sets by name; write `eval: {heldout: {path: ...}}`.", ("data", "eval"))


def column_maps_fit(data: DataSection) -> Iterator[Problem]:
    for where, source in sources(data):
        records = _first_records(source)
        names = {key for record in records.records for key in record} if isinstance(records, Peek) else None
        for ours, theirs in source.columns.items():
            text = ""
            if ours not in _COLUMNS:
                text = f"'{ours}' is not a column of a record.{did_you_mean(ours, _COLUMNS)}"
                text += f" Columns: {', '.join(_COLUMNS)}."
            elif names is not None and theirs not in names:
                text = f"{short(source.path)} has no column '{theirs}'.{did_you_mean(theirs, names)}"
                text += f" Columns: {', '.join(sorted(names))}."
            if text:
                yield Problem(f"data.{where[1]}: columns: {text}", (*where, "columns", ours))


def columns_fit_loss(data: DataSection, objective: Objective) -> Iterator[Problem]:
    for where, source in sources(data):
        seen = _seen(source)
        file = short(source.path)
        text = (_wrong_form(seen, objective, file) or _missing_need(seen, objective, file)) if seen else ""
        if text:
            yield Problem(f"loss '{objective.name}' {text}", (*where, "path"))


def _wrong_form(seen: Peek, objective: Objective, file: str) -> str:
    has = seen.columns
    known = f"its columns are {', '.join(sorted(has))}. `columns: {{ours: theirs}}` renames."
    if has >= {"responses", "rewards"}:
        return ""
    if objective.responses == "single":
        found = has & {"completion", "chosen"}
        return "" if found else f"reads one response, but {file} has neither completion nor chosen; {known}"
    if has >= {"chosen", "rejected"}:
        return ""
    if has >= {"completion", "label"}:
        unpaired = ", ".join(name for name in loss_names() if loss_spec(name).responses == "single")
        return f"compares responses, but {file} holds single completions. Losses for those: {unpaired}."
    return f"compares responses, but {file} lacks {' and '.join(sorted({'chosen', 'rejected'} - has))}; {known}"


def _missing_need(seen: Peek, objective: Objective, file: str) -> str:
    for need, needed in NEEDED.items():
        if need in objective.needs and not any(seen.columns >= set(names) for names in needed.columns):
            return f"needs {needed.words}, but {file} has none ({needed.where})."
    return ""


def negatives_fit_loss(data: DataSection, objective: Objective) -> Iterator[Problem]:
    if objective.responses != "pair" or data.negatives == "expand":
        return
    for where, source in sources(data):
        seen = _seen(source)
        most = max((_rejected(record) for record in seen.records), default=0) if seen else 0
        if most > 1:
            text = f"compares pairs, but {short(source.path)} has {most} rejected responses in a row."
            hint = "`data.negatives: expand` makes a pair of each."
            yield Problem(f"loss '{objective.name}' {text} {hint}", (*where, "path"))


def _rejected(record: Any) -> int:
    """How many rejected responses a record has; a list of messages is one."""
    rejected = record.get("rejected")
    if isinstance(rejected, list):
        return 1 if any(isinstance(item, dict) for item in rejected) else len(rejected)
    rewards = record.get("rewards")
    return sum(reward < max(rewards) for reward in rewards) if _numbers(rewards) else 1


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, int | float) for item in value)


def answers_for_generation(data: DataSection, evaluation: EvaluationSection) -> Iterator[Problem]:
    if evaluation.generate is None or not data.eval:
        return
    peeks = [_seen(source) for source in data.eval.values()]
    if all(seen is not None and "answer" not in seen.columns for seen in peeks):
        text = "evaluation.generate compares with the column answer, and no set under data.eval has one."
        yield Problem(text, ("evaluation", "generate"))


def a_batch_is_filled(data: DataSection, training: dict[str, Any]) -> Iterator[Problem]:
    """Where every file can be counted. Rows that do not fit are left out later, so there may be fewer, never more."""
    if not training.get("dataloader_drop_last") or data.negatives == "expand":
        return
    counts = [row_count(Path(source.path)) for source in data.train if Path(source.path).is_absolute()]
    if len(counts) < len(data.train) or None in counts:
        return
    rows = sum(math.ceil(count * source.weight) for count, source in zip(counts, data.train, strict=True) if count)
    batch = value_of(training, "per_device_train_batch_size")
    if rows < batch:
        text = f"training.dataloader_drop_last leaves nothing to train on: data.train has {rows} rows, and"
        where = ("training", "dataloader_drop_last")
        yield Problem(f"{text} per_device_train_batch_size is {batch}.", where)


def data_settings_are_used(written: Written, data: DataSection) -> Iterator[Problem]:
    if data.eos_on_cut and data.truncate != "response":
        text = f"data.eos_on_cut has no effect: data.truncate is {data.truncate}, so no response is cut."
        yield Problem(text, ("data", "eos_on_cut"))
    if data.chat_template is not None and data.template == "never":
        yield Problem("data.chat_template has no effect: data.template is never.", ("data", "chat_template"))
    if data.max_length is None and written.has("data", "truncate"):
        yield Problem("data.truncate has no effect: data.max_length is null.", ("data", "truncate"))


def template_is_readable(data: DataSection) -> Iterator[Problem]:
    template = data.chat_template
    path = ("data", "chat_template")
    if template is None or "{" in template or "\n" in template:
        return
    if not Path(template).is_absolute():
        yield Problem("data.chat_template is neither the path of a file nor a template with {{ ... }}.", path)
    elif not Path(template).is_file():
        yield Problem(f"data.chat_template: there is no file {short(template)}.", path)


DATA_RULES: tuple[Callable[..., Iterable[Problem]], ...] = (
    sources_exist,
    evaluation_sets_are_named,
    column_maps_fit,
    columns_fit_loss,
    negatives_fit_loss,
    answers_for_generation,
    a_batch_is_filled,
    data_settings_are_used,
    template_is_readable,
)
