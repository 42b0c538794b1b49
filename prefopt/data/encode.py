"""A record -> a row of token ids. The one way from text to ids, for training, evaluation, preview and scoring alike.

Context and responses are tokenized as one text, and the context is what the tokens of all responses begin with: a token
that spans prompt and response counts with the response, and context + response always are the tokens of the whole text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from transformers import PreTrainedTokenizerBase

from prefopt.data import rows
from prefopt.data.differences import difference_masks
from prefopt.data.encoded import EncodedRow
from prefopt.data.marks import Marks
from prefopt.data.messages import text_of
from prefopt.data.options import DataOptions
from prefopt.data.records import Content, Example, read_example, read_prompt
from prefopt.data.rejection import RejectedError, Rejection
from prefopt.data.render import Rendered, Side, generation_prompt, render_chat, render_text
from prefopt.data.spans import Places, response_values, shared_columns, token_columns
from prefopt.data.template import ChatTemplate, template_source
from prefopt.data.tokens import TextTokenizer, Tokens, common_length
from prefopt.data.truncate import fitted
from prefopt.errors import DataError

__all__ = ["EncodedRow", "Encoder", "Rejection", "encode_prompt", "encode_row"]


def encode_row(
    record: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, options: DataOptions
) -> EncodedRow | Rejection:
    """The row of one record, or why it gives none.

    Raises: `DataError` for what concerns all rows of the kind: no chat template, several rejected responses for a loss
    on pairs, a row over length under `truncate: error`; and when `negatives: expand` makes several rows (see
    `Encoder.encode`).
    """
    found = Encoder(tokenizer, options).encode([record])[0]
    if len(found) > 1:
        raise DataError(
            f"the record gives {len(found)} rows, one per rejected response; Encoder.encode returns them all."
        )
    return found[0]


def encode_prompt(
    record: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, options: DataOptions
) -> list[int] | Rejection:
    """The ids that a model continues to answer a record's prompt. The record may be without responses."""
    return Encoder(tokenizer, options).encode_prompt(record)


class _Draft(NamedTuple):
    """An example as text, waiting for its ids."""

    example: Example
    rendered: Rendered
    bos_in_response: bool


class _Response(NamedTuple):
    """One response as ids, with its columns of `rows.PER_TOKEN`. `end` ends it, None for one that is open."""

    ids: list[int]
    mask: list[bool]
    tokens: dict[str, list[Any]]
    end: int | None


def _mostly(token: int | None, response: _Response) -> bool:
    """Whether a token makes more than half of a response, its end aside."""
    if token is None:
        return False
    return 2 * response.ids.count(token) > len(response.ids) - (response.end is not None)


class Encoder:
    """Records to rows, for one tokenizer and one set of options."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, options: DataOptions) -> None:
        self.options, self.tokenize = options, TextTokenizer(tokenizer)
        self.template = ChatTemplate(
            tokenizer,
            source=template_source(options.chat_template),
            eos=tokenizer.eos_token,
            special=self.tokenize.special_texts,
        )

    @property
    def rules(self) -> dict[str, Any]:
        """How text becomes ids, for whoever has to feed a server the same."""
        tokenizer = self.tokenize.tokenizer
        return {
            "bos": None if self.tokenize.bos_id is None else tokenizer.bos_token,
            "end_token": tokenizer.eos_token,
            "eos": self.options.eos,
            "split": self.options.split,
            "template": self.options.template,
        }

    def encode(
        self, records: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None
    ) -> list[list[EncodedRow | Rejection]]:
        """The rows of each record: one, or with `negatives: expand` one per rejected response.

        Raises: `DataError`, beginning with the record's name, for what no row of its kind can be used for.
        """
        names = names or [f"record {number}" for number in range(1, len(records) + 1)]
        drafts = [_named(name, self._drafts, record) for name, record in zip(names, records, strict=True)]
        tokens = iter(self._tokenized([d.rendered for found in drafts for d in found if isinstance(d, _Draft)]))
        rows_of: list[list[EncodedRow | Rejection]] = []
        for name, found in zip(names, drafts, strict=True):
            made = [_named(name, self._row, d, next(tokens)) if isinstance(d, _Draft) else d for d in found]
            rows_of.append(_noted_once(_noted_once(made, rows.NEGATIVES_DROPPED), rows.PAIR_SPLIT))
        return rows_of

    def encode_prompt(self, record: Mapping[str, Any]) -> list[int] | Rejection:
        """The ids that a model continues to answer a record's prompt. The record may be without responses."""
        example = read_example(record, replace(self.options, responses="many"))
        if isinstance(example, Rejection) and "prompt" in record:
            example = read_prompt(record, self.options)
        if isinstance(example, Rejection):
            return example
        chat = not isinstance(example.prompt, str)
        try:
            text = generation_prompt(example, self.template) if chat else f"{example.prompt}{example.prefix or ''}"
        except RejectedError as error:
            return error.rejection
        return self.tokenize.with_one_bos(self.tokenize([text])[0], add=not chat)[0].ids

    # ------------------------------------------------------------------------------------------------ text

    def _drafts(self, record: Mapping[str, Any]) -> list[_Draft | Rejection]:
        example = read_example(record, self.options)
        if isinstance(example, Rejection):
            return [example]
        examples = [example]
        if self.options.splits_pairs:
            examples = example.singles()
        elif self.options.negatives == "expand":
            examples = example.pairs()
        return [self._draft(e) for e in examples]

    def _draft(self, example: Example) -> _Draft | Rejection:
        bare = self._without_bos(example)
        try:
            rendered = self._render(bare)
            if not _is_unicode([side.text for side in rendered.sides]):
                raise RejectedError(rows.BAD_MESSAGE, "a text holds half of a surrogate pair, which is no character")
            return _Draft(bare, rendered, bare.responses != example.responses)
        except RejectedError as error:
            return error.rejection

    def _render(self, example: Example) -> Rendered:
        complete = self._is_complete(example)
        if isinstance(example.prompt, str):
            return render_text(example, complete=complete, stops=self.tokenize.stops)
        return render_chat(
            example, self.template, complete=complete, all_turns=self.options.train_on == "all_assistant"
        )

    def _is_complete(self, example: Example) -> bool:
        """Whether responses are closed with an end token."""
        if self.options.eos == "never":
            return False
        if example.complete is not None:
            return example.complete
        return example.prefix is None or self.options.eos == "append"

    def _without_bos(self, example: Example) -> Example:
        """The example without a BOS in front of its responses: the one BOS stands in front of the prompt."""
        bos = self.tokenize.tokenizer.bos_token
        if self.tokenize.bos_id is None or not bos or not example.prompt:
            return example
        found = [_first_text(response).startswith(bos) for response in example.responses]
        if not any(found):
            return example
        responses = tuple(_without_first(c, bos) if has else c for c, has in zip(example.responses, found, strict=True))
        marks = tuple(mark.moved(len(bos) * has) for mark, has in zip(example.marks, found, strict=True))
        return replace(example, responses=responses, marks=marks)

    # ------------------------------------------------------------------------------------------------ ids

    def _tokenized(self, rendered: Sequence[Rendered]) -> list[list[Tokens]]:
        """Tokens of each row's context and sides; with `split: separate` the sides' without the context."""
        if self.options.split == "joint":
            flat = iter(
                self.tokenize([text for item in rendered for text in (item.context, *(s.text for s in item.sides))])
            )
            return [[next(flat) for _ in range(len(item.sides) + 1)] for item in rendered]
        contexts = self.tokenize([item.context for item in rendered])
        return [[context, *self._apart(item)] for context, item in zip(contexts, rendered, strict=True)]

    def _apart(self, item: Rendered) -> list[Tokens]:
        start = len(item.context)
        return self.tokenize.continuations([side.text[start:] for side in item.sides], shift=start)

    def _row(self, draft: _Draft, tokens: Sequence[Tokens]) -> EncodedRow | Rejection:
        try:
            row = self._assembled(draft, tokens)
            return fitted(row.distinct(rows.IDENTICAL), self.options, bos_id=self.tokenize.bos_id)
        except RejectedError as error:
            return error.rejection

    def _assembled(self, draft: _Draft, tokens: Sequence[Tokens]) -> EncodedRow:
        """The row before anything is cut."""
        example, rendered = draft.example, draft.rendered
        if not all(side.text.startswith(rendered.context) for side in rendered.sides):
            raise RejectedError(rows.BOUNDARY_MISMATCH, rows.REASONS[rows.BOUNDARY_MISMATCH])
        context, bos_in_text = self.tokenize.with_one_bos(tokens[0], add=not rendered.is_chat)
        sides, start, moved = tokens[1:], 0, 0
        if self.options.split == "joint":
            found_bos = [self.tokenize.with_one_bos(side, add=not rendered.is_chat) for side in sides]
            sides = [side for side, _ in found_bos]
            bos_in_text = bos_in_text or any(more for _, more in found_bos)  # prompt and response may form one together
            start = common_length([context.ids, *(side.ids for side in sides)])
            moved = 0 if start == len(context.ids) else max(len(rendered.context) - self._start_of(context, start), 1)
        prompt_ids = context.ids[: start if self.options.split == "joint" else None]
        responses = [
            self._response(side, text, start, len(rendered.context), mark)
            for side, text, mark in zip(sides, rendered.sides, example.marks, strict=True)
        ]
        if not prompt_ids:
            responses = [r._replace(mask=[False, *r.mask[1:]]) for r in responses]
        if not all(any(r.mask) for r in responses):
            raise RejectedError(rows.EMPTY_ANSWER, "no token of a response can be scored")
        found = {
            rows.BOUNDARY_MOVED: moved > 0,
            rows.FIRST_TOKEN_UNSCORED: not prompt_ids,
            rows.BOS_IN_TEXT: bos_in_text or draft.bos_in_response,
            rows.NO_END_TOKEN: any(
                s.complete and r.end is None for s, r in zip(rendered.sides, responses, strict=True)
            ),
            rows.UNKNOWN_TOKENS: any(_mostly(self.tokenize.unknown_id, r) for r in responses),
        }
        columns = shared_columns([r.tokens for r in responses], [len(r.ids) for r in responses])
        if rows.DIFF in (self.options.needs or ()) and rows.DIFF not in columns:
            columns[rows.DIFF] = list(difference_masks(*(r.ids for r in responses)))
            found[rows.DIFF_FOUND] = True
        return EncodedRow(
            prompt_ids=prompt_ids,
            responses=[r.ids for r in responses],
            masks=[r.mask for r in responses],
            ends=[r.end for r in responses],
            tokens=columns,
            values=response_values(example.marks),
            label=example.label,
            answer=example.answer,
            notes=(*example.notes, *rendered.notes, *(note for note, holds in found.items() if holds)),
            moved=moved,
        )

    def _start_of(self, tokens: Tokens, at: int) -> int:
        return tokens.span(at)[0] if tokens.tells_spans else 0

    def _response(self, tokens: Tokens, side: Side, start: int, context: int, mark: Marks) -> _Response:
        """The ids of one response from token `start` on, closed if need be; it begins behind `context` characters."""
        ids, mask = list(tokens.ids[start:]), [True] * (len(tokens.ids) - start)
        if side.scored is not None:  # what moved across the boundary belongs to the first turn
            turns = [(0 if first <= context else first, last) for first, last in side.scored]
            mask = [any(s < last and e > first for first, last in turns) for s, e in tokens.spans(start)]
        end = self._end(side, ids) if side.complete else None
        added = end if not self._is_closed(side) else None
        columns = token_columns(mark, ids, Places(tokens, start, side), added=added)
        if added is not None:
            ids, mask = [*ids, added], [*mask, True]
        return _Response(ids, mask, columns, end)

    def _is_closed(self, side: Side) -> bool:
        """Whether the text has its end token; `append` insists on the tokenizer's own."""
        if self.options.eos == "auto":
            return side.closed
        return side.text.rstrip().endswith(self.template.eos or "\0")

    def _end(self, side: Side, ids: Sequence[int]) -> int | None:
        """The token that ends a complete answer, and would end it if it were cut."""
        if self._is_closed(side) and ids and ids[-1] in self.tokenize.special_ids:
            return ids[-1]
        return self.tokenize.eos_id


def _noted_once(found: Sequence[EncodedRow | Rejection], note: str) -> list[EncodedRow | Rejection]:
    """The rows of one record, a note that tells of the record on the first of them only."""
    noted = [row for row in found if isinstance(row, EncodedRow) and note in row.notes]
    return [
        replace(row, notes=tuple(n for n in row.notes if n != note))
        if isinstance(row, EncodedRow) and any(row is other for other in noted[1:])
        else row
        for row in found
    ]


def _is_unicode(texts: Sequence[str]) -> bool:
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def _first_text(content: Content) -> str:
    return content if isinstance(content, str) else text_of(content[0]) if content else ""


def _without_first(content: Content, text: str) -> Content:
    if isinstance(content, str):
        return content.removeprefix(text)
    return [content[0] | {"content": text_of(content[0]).removeprefix(text)}, *content[1:]]


T = TypeVar("T")


def _named(name: str, make: Callable[..., T], *args: Any) -> T:
    """What `make` gives; its `DataError` begins with the record's name."""
    try:
        return make(*args)
    except DataError as error:
        raise DataError(*(f"{name}: {problem}" for problem in error.problems)) from None
