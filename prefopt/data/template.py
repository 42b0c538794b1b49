"""The tokenizer's chat template: messages in, text out, and where in that text an answer ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError
from transformers import PreTrainedTokenizerBase

from prefopt.data import rows
from prefopt.data.messages import Message
from prefopt.data.rejection import RejectedError
from prefopt.errors import DataError

_REFUSALS = (TemplateError, TypeError, ValueError, AttributeError, KeyError, IndexError)


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template with the tokens that can close a turn.

    `source` is a Jinja template that replaces the tokenizer's own; `eos` the text of the tokenizer's end token;
    `special` the texts of all its special tokens.
    """

    tokenizer: PreTrainedTokenizerBase
    source: str | None
    eos: str | None
    special: tuple[str, ...]

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: list[Any] | None,
        variables: Mapping[str, Any],
        generate: bool = False,
    ) -> str:
        """The conversation as text; with `generate` followed by the header of the assistant's next turn.

        Raises: `RejectedError` when the template refuses these messages, `DataError` when there is no usable template.
        """
        if self.source is None and self.tokenizer.chat_template is None:
            raise DataError(
                "the rows hold messages, and the tokenizer has no chat template. "
                "`data.chat_template` gives one: the text of a Jinja template, or the path of a file."
            )
        try:
            text = self.tokenizer.apply_chat_template(
                list(messages),
                tools=tools,
                chat_template=self.source,
                add_generation_prompt=generate,
                tokenize=False,
                **variables,
            )
        except TemplateSyntaxError as error:
            raise DataError(f"the chat template is not valid Jinja, line {error.lineno}: {error.message}") from None
        except _REFUSALS as error:
            raise RejectedError(rows.BAD_MESSAGE, f"the chat template refuses the messages: {error}") from None
        assert isinstance(text, str)
        return text

    def end_of_answer(self, text: str, start: int, *, complete: bool = True) -> tuple[int, bool]:
        """Where an answer ends in rendered text, not before `start`, and whether an end token stands there.

        One that is not complete ends before the special tokens at the very end. The end token of a complete one is
        looked for among the special tokens at the very end: after the EOS if it is there, else after the last of them.
        What follows, a line break usually, is the template's and nothing that a model generates. Without any special
        token the answer is open and ends with the text.
        """
        at = self._closing(text, start)
        if not complete:
            return at, False
        if self.eos is not None and (found := text.find(self.eos, at)) >= 0:
            return found + len(self.eos), True
        ends = [found + len(token) for token in self.special if (found := text.rfind(token, at)) >= 0]
        return (max(ends), True) if ends else (len(text), False)

    def end_of_turn(self, text: str, start: int, after: int, limit: int) -> int:
        """Where a turn that begins at `start` ends, before `limit`; its own text reaches to `after`."""
        if self.eos is not None and (found := text.find(self.eos, start, limit)) >= 0:
            return found + len(self.eos)
        ends = [found + len(token) for token in self.special if (found := text.find(token, after, limit)) >= 0]
        return min(ends, default=min(after, limit))

    def _closing(self, text: str, start: int) -> int:
        """Where the special tokens and the white space at the end of the text begin."""
        at = len(text)
        while True:
            at = start + len(text[start:at].rstrip())
            token = next((token for token in self.special if text.endswith(token, start, at)), None)
            if token is None:
                return at
            at -= len(token)


def template_source(option: str | None) -> str | None:
    """The template that `data.chat_template` names: a file's content, or the option itself when it is a template.

    Raises: `DataError` when it is neither.
    """
    if option is None or "{{" in option or "{%" in option:
        return option
    try:
        return Path(option).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"data.chat_template: {option} is neither a template nor a file that can be read: {error}"
        ) from None
