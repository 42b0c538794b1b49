"""`prefopt preview`: the first rows as tokens, with the boundary between context and response, and what is scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from prefopt.config import load_recipe
from prefopt.data import DataOptions, EncodedRow, Encoder, Rejection, Source, first_records
from prefopt.data.rows import NOTES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CONTEXT = "dim"
_SCORED = ("black on bright_green", "black on green3")
_REJECTED = ("black on bright_yellow", "black on gold3")
_UNSCORED = "dim strike"
_OPEN, _CLOSE = "⟨", "⟩"
_LAST = 5
"""Ids shown of the end of each side."""


def preview(recipe: Path, overrides: Sequence[str], *, rows: int = 3) -> None:
    """Print the first rows of a recipe's training data, as training will see them.

    Raises: `ConfigError`, `DataError` for what the recipe or its data get wrong.
    """
    loaded = load_recipe(recipe, overrides)
    from prefopt.train.build import data_options, source
    from prefopt.train.model import load_tokenizer

    model = loaded.model
    tokenizer = load_tokenizer(model.name_or_path, revision=model.revision, trust_remote_code=model.trust_remote_code)
    sources = [source(section) for section in loaded.data.train]
    show_rows(sources, tokenizer, data_options(loaded, loaded.objective()), count=rows)


def show_rows(
    sources: Sequence[Source],
    tokenizer: PreTrainedTokenizerBase,
    options: DataOptions,
    *,
    count: int = 3,
    console: Console | None = None,
) -> None:
    """Print the first `count` rows of each source.

    Raises: `DataError` when a source cannot be read or no row of its kind can be used.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    encoder = Encoder(tokenizer, options)
    console.print(_legend())
    for source in sources:
        records = first_records(source, count)
        names = [str(record.get("id") or f"record {number}") for number, record in enumerate(records, start=1)]
        for name, found in zip(names, encoder.encode(records, names), strict=True):
            for row in found:
                console.print(_heading(f"{source.path}: {name}", row))
                for line in [] if isinstance(row, Rejection) else _lines(row, tokenizer):
                    console.print(line)


def _legend() -> Text:
    parts = [
        ("context", _CONTEXT),
        ("chosen", _SCORED[0]),
        ("rejected", _REJECTED[0]),
        (f"{_OPEN}not scored{_CLOSE}", _UNSCORED),
    ]
    return Text("  ").join(Text(name, style) for name, style in parts)


def _heading(name: str, row: EncodedRow | Rejection) -> Text:
    if isinstance(row, Rejection):
        return Text(f"\n{name}: left out, {row.reason}: {row.detail}", "bold red")
    sides = ", ".join(f"{side} {len(ids)}" for side, ids in _sides(row))
    heading = Text(f"\n{name}: context {len(row.prompt_ids)} tokens, {sides}", "bold")
    for note in dict.fromkeys(row.notes):
        heading.append(f"\n  {note}: {NOTES[note]}", "yellow")
    return heading


def _sides(row: EncodedRow) -> list[tuple[str, list[int]]]:
    if len(row.responses) == 1:
        return [("response", row.responses[0])]
    several = len(row.responses) > 2
    names = ["chosen", *(f"rejected {r}" if several else "rejected" for r in range(1, len(row.responses)))]
    return list(zip(names, row.responses, strict=True))


def _lines(row: EncodedRow, tokenizer: PreTrainedTokenizerBase) -> Iterator[Text]:
    """The context, then each response: its tokens, and the ids at its end."""
    yield Text("context: ").append(_visible("".join(pieces(tokenizer, row.prompt_ids))), _CONTEXT)
    for r, (side, ids) in enumerate(_sides(row)):
        texts = pieces(tokenizer, ids, after=row.prompt_ids)
        yield Text(f"{side}: ").append(_response(texts, row.masks[r], _REJECTED if r else _SCORED))
        last = [f"{id_} {text!r}" for id_, text in zip(ids[-_LAST:], texts[-_LAST:], strict=True)]
        yield Text(f"  last ids: {', '.join(last)}")


def _response(texts: Sequence[str], mask: Sequence[bool], styles: tuple[str, str]) -> Text:
    """Tokens in two alternating colours; what is not scored is struck out, in brackets."""
    line = Text()
    for t, (text, scored) in enumerate(zip(texts, mask, strict=True)):
        if not scored and (t == 0 or mask[t - 1]):
            line.append(_OPEN, _UNSCORED)
        line.append(_visible(text), styles[t % 2] if scored else _UNSCORED)
        if not scored and (t + 1 == len(mask) or mask[t + 1]):
            line.append(_CLOSE, _UNSCORED)
    return line


def _visible(text: str) -> str:
    return text.replace("\n", "↵\n")


def pieces(tokenizer: Any, ids: Sequence[int], *, after: Sequence[int] = ()) -> list[str]:
    """The text that each token adds to those before it. A character of several tokens stands with its last one."""
    context = list(after[-8:])
    known = _text(tokenizer, context)
    found = []
    for end in range(1, len(ids) + 1):
        text = _text(tokenizer, [*context, *ids[:end]])
        whole = not text.endswith("\N{REPLACEMENT CHARACTER}")
        found.append(text[len(known) :] if whole else "")
        known = text if whole else known
    return found


def _text(tokenizer: Any, ids: list[int]) -> str:
    text: str = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text
