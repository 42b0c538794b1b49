"""Text -> token ids with the characters that each covers, under one rule for BOS."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transformers import PreTrainedTokenizerBase

from prefopt.errors import DataError

Span = tuple[int, int]


@dataclass(frozen=True)
class Tokens:
    """Ids of a text. `offsets` knows which characters they cover, behind `skip` ids of its own and moved by `shift`."""

    ids: list[int]
    offsets: Any = None
    skip: int = 0
    shift: int = 0

    def span(self, at: int) -> Span:
        """The characters `[start, end)` that token `at` covers, at least one.

        Raises: `DataError` when the tokenizer does not tell.
        """
        if self.offsets is None:
            raise DataError(
                "the tokenizer does not say which characters a token covers; steps and turns need a fast tokenizer."
            )
        if at + self.skip < 0:
            return 0, 0  # a BOS that was put in front
        start, end = self.offsets.offsets[at + self.skip]
        return start + self.shift, max(end, start + 1) + self.shift

    def spans(self, start: int = 0) -> list[Span]:
        """`span` of every token from `start` on."""
        return [self.span(at) for at in range(start, len(self.ids))]

    @property
    def tells_spans(self) -> bool:
        """Whether `span` can be asked for."""
        return self.offsets is not None


class TextTokenizer:
    """A tokenizer without its own ideas about special tokens: ids of the text as it stands, BOS by our rule."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def unknown_id(self) -> int | None:
        """The token for what the tokenizer does not know, if it has one that serves nothing else."""
        words = self.tokenizer
        return None if words.unk_token_id in (words.eos_token_id, words.bos_token_id) else words.unk_token_id

    @cached_property
    def bos_id(self) -> int | None:
        """The token that the tokenizer puts in front of text, at inference too; None when it puts none there."""
        bos = self.tokenizer.bos_token_id
        return bos if isinstance(bos, int) and self.tokenizer("a")["input_ids"][:1] == [bos] else None

    @property
    def eos_id(self) -> int | None:
        """The id that ends an answer."""
        eos = self.tokenizer.eos_token_id
        return eos if isinstance(eos, int) else None

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of all special tokens."""
        added = self.tokenizer.added_tokens_decoder
        return frozenset([*self.tokenizer.all_special_ids, *(id_ for id_, token in added.items() if token.special)])

    @cached_property
    def special_texts(self) -> tuple[str, ...]:
        """Texts of all special tokens."""
        added = self.tokenizer.added_tokens_decoder.values()
        return tuple(
            dict.fromkeys(
                [*self.tokenizer.all_special_tokens, *(str(token.content) for token in added if token.special)]
            )
        )

    @cached_property
    def stops(self) -> tuple[str, ...]:
        """Texts of special tokens that close plain text when they stand at its end."""
        others = {self.tokenizer.bos_token, self.tokenizer.unk_token, self.tokenizer.pad_token} - {
            self.tokenizer.eos_token
        }
        return tuple(text for text in self.special_texts if text not in others)

    def __call__(self, texts: Sequence[str]) -> list[Tokens]:
        """The ids of each text, nothing added."""
        if not texts:
            return []
        found = self.tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)
        encodings = found.encodings if self.tokenizer.is_fast else None
        return [Tokens(ids, encodings and encodings[number]) for number, ids in enumerate(found["input_ids"])]

    def continuations(self, texts: Sequence[str], *, shift: int) -> list[Tokens]:
        """The ids of texts that stand behind `shift` characters of another text, tokenized apart from it.

        Tokenizers that put a space in front of every text would put one between the two; a line break in front keeps it
        away.
        """
        if shift == 0 or not self._adds_space:
            return [Tokens(t.ids, t.offsets, shift=shift) for t in self(texts)]
        guard = len(self(["\n"])[0].ids)
        found = self(["\n" + text for text in texts])
        return [Tokens(t.ids[guard:], t.offsets, skip=guard, shift=shift - 1) for t in found]

    @cached_property
    def _adds_space(self) -> bool:
        alone, behind, guard = (t.ids for t in self(["a", "\na", "\n"]))
        return guard == behind[: len(guard)] and behind[len(guard) :] != alone

    def with_one_bos(self, tokens: Tokens, *, add: bool) -> tuple[Tokens, bool]:
        """Tokens with one BOS in front at most, and whether there were more. With `add` one is put where none stands.

        A tokenizer that puts no BOS in front of text by itself gets none here either.
        """
        if self.bos_id is None:
            return tokens, False
        own = sum(1 for _ in itertools.takewhile(lambda token: token == self.bos_id, tokens.ids))
        if own == 0 and add:
            return Tokens([self.bos_id, *tokens.ids], tokens.offsets, skip=tokens.skip - 1, shift=tokens.shift), False
        extra = max(own - 1, 0)
        return Tokens(tokens.ids[extra:], tokens.offsets, skip=tokens.skip + extra, shift=tokens.shift), own > (1 - add)


def common_length(sequences: Sequence[Sequence[int]]) -> int:
    """How many ids all sequences begin with."""
    shortest = min(map(len, sequences))
    first = list(sequences[0][:shortest])
    if all(list(other[:shortest]) == first for other in sequences[1:]):
        return shortest
    return next(i for i in range(shortest) if any(other[i] != first[i] for other in sequences[1:]))
