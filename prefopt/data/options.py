"""How records become rows: the options of the data section that decide it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args, get_type_hints

from prefopt.data import rows
from prefopt.errors import ConfigError, Problem, did_you_mean


def column_needs(needs: Iterable[str]) -> tuple[str, ...]:
    """Those of a loss's needs that come with the data."""
    return tuple(sorted({str(need) for need in needs} & {*rows.MARKS, rows.EXTERNAL, rows.LABELS}))


@dataclass(frozen=True)
class DataOptions:
    """How records become rows.

    `max_length`: longest prompt + response, tokens; None for no limit. `truncate`: what happens to a longer row: `drop`
    leaves it out, `response` cuts responses at their end, `prompt_start` cuts the prompt at its beginning, `error`
    stops. `eos`: `auto` closes a complete answer unless it is already closed, `append` also closes step rows and
    answers that the template closes with another token, `never` closes nothing; a record's `complete: false` wins.
    `eos_on_cut`: a response that was cut still gets its end token. `split`: prompt and response tokenized as one text
    (`joint`) or apart (`separate`). `train_on`: score the last assistant turn of a response, or all of them.
    `negatives`: several rejected responses stay one row, or become pairs. `responses`: what the loss reads: a `single`
    response, a `pair`, or `many`. `needs`: the columns it reads beside them (`column_needs`): rows without these are
    left out, and other columns are not read; None reads what is there and asks for nothing. `template`: `auto` renders
    messages with the chat template and leaves text as it is, `always` wraps text into a user and an assistant message,
    `never` refuses messages. `chat_template`: a template that replaces the tokenizer's, as text or as the path of a
    file. `max_lost`: share of records that may be left out. `num_proc`: processes that tokenize; None decides by the
    number of records.

    Raises: `ConfigError` for a value outside its range.
    """

    max_length: int | None = 1024
    truncate: Literal["drop", "response", "prompt_start", "error"] = "drop"
    eos: Literal["auto", "append", "never"] = "auto"
    eos_on_cut: bool = False
    split: Literal["joint", "separate"] = "joint"
    train_on: Literal["last", "all_assistant"] = "last"
    negatives: Literal["keep", "expand"] = "keep"
    allow_empty: bool = False
    max_lost: float = 0.05
    responses: Literal["single", "pair", "many"] = "pair"
    needs: tuple[str, ...] | None = None
    template: Literal["auto", "always", "never"] = "auto"
    chat_template: str | None = None
    num_proc: int | None = None

    def __post_init__(self) -> None:
        problems = [_refused(name, value, kind) for name, value, kind in self._choices() if value not in get_args(kind)]
        if self.max_length is not None and self.max_length < 2:
            problems.append(f"data.max_length must be at least 2 tokens; got {self.max_length}.")
        if not 0 <= self.max_lost <= 1:
            problems.append(f"data.max_lost must be a share between 0 and 1; got {self.max_lost}.")
        if self.num_proc is not None and self.num_proc < 1:
            problems.append(f"data.num_proc must be at least 1; got {self.num_proc}.")
        if problems:
            raise ConfigError(*(Problem(text) for text in problems))

    def _choices(self) -> list[tuple[str, Any, Any]]:
        hints = get_type_hints(DataOptions)
        names = ("truncate", "eos", "split", "train_on", "negatives", "responses", "template")
        return [(name, getattr(self, name), hints[name]) for name in names]

    @property
    def splits_pairs(self) -> bool:
        """Whether a pair becomes two rows with labels, for a loss on single responses that reads them."""
        return self.responses == "single" and rows.LABELS in (self.needs or ())

    def key(self) -> str:
        """The options that decide what a row holds, as JSON text: equal keys give equal rows."""
        return json.dumps({k: v for k, v in asdict(self).items() if k not in ("max_lost", "num_proc")}, sort_keys=True)


def _refused(name: str, value: Any, kind: Any) -> str:
    allowed = get_args(kind)
    return f"data.{name} must be one of {', '.join(allowed)}; got {value!r}.{did_you_mean(str(value), allowed)}"
