"""A record as it was written -> an `Example`: one prompt, its responses, and what is known about them, checked.

Text stays as it is, byte for byte. Conversations are lists of messages with a `role`; they split only between messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prefopt.data import fields, rows
from prefopt.data.fields import needed
from prefopt.data.marks import Marks, Place, check_needs, read_marks
from prefopt.data.messages import Message, check_messages, says_nothing, text_of, wrapped
from prefopt.data.options import DataOptions
from prefopt.data.prompts import split_messages, split_text
from prefopt.data.rejection import RejectedError, Rejection
from prefopt.errors import DataError

Content = str | list[Message]


@dataclass(frozen=True)
class Example:
    """A record in one form. Prompt and responses are all text or all messages; response 0 is the chosen one.

    `prefix` is a beginning of the answer that all responses continue. `complete` says whether the responses reach the
    end of the answer; None leaves it to the options. `marks[r]` is what else is known about response r.
    """

    prompt: Content
    responses: tuple[Content, ...]
    prefix: str | None = None
    complete: bool | None = None
    tools: list[Any] | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    marks: tuple[Marks, ...] = ()
    label: bool | None = None
    answer: str | None = None
    notes: tuple[str, ...] = ()

    def pairs(self) -> list[Example]:
        """One example per rejected response, each with the same chosen one."""
        if len(self.responses) <= 2:
            return [self]
        return [self.only((0, r)) for r in range(1, len(self.responses))]

    def only(self, keep: Sequence[int]) -> Example:
        """The example with these responses, in this order."""
        return replace(
            self,
            responses=tuple(self.responses[r] for r in keep),
            marks=tuple(self.marks[r] for r in keep),
        )

    def singles(self) -> list[Example]:
        """One example per response, each with its label: the chosen one is desirable, the others are not."""
        if len(self.responses) == 1:
            return [self]
        one = self.noted(rows.PAIR_SPLIT)
        return [replace(one.only((r,)), label=r == 0) for r in range(len(self.responses))]

    def noted(self, note: str) -> Example:
        """The example with one more note of `rows.NOTES`."""
        return replace(self, notes=(*self.notes, note))


def read_example(record: Mapping[str, Any], options: DataOptions) -> Example | Rejection:
    """A checked example, or why there is none.

    Raises: `DataError` when a loss on pairs meets several rejected responses.
    """
    try:
        return _read(_without_aliases(record), options)
    except RejectedError as error:
        return error.rejection


def read_prompt(record: Mapping[str, Any], options: DataOptions) -> Example | Rejection:
    """An example without responses, from the prompt of a record that may have none."""
    try:
        record = _without_aliases(record)
        prompt = _content(needed(record, "prompt"), "prompt")
        if isinstance(prompt, str) and options.template == "always":
            prompt = wrapped(prompt, "user")
        return Example(
            prompt=prompt,
            responses=(),
            prefix=fields.text_or_none(record, "initial_reason_steps"),
            tools=fields.tools(record),
            template_kwargs=fields.template_kwargs(record),
        )
    except RejectedError as error:
        return error.rejection


def _without_aliases(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with `rows.ALIASES` under the names they stand for; both may be there when they say the same."""
    found = dict(record)
    for alias, name in rows.ALIASES.items():
        value = found.pop(alias, None)
        if value is None:
            continue
        if found.get(name) is None:
            found[name] = value
        if found[name] != value:
            raise RejectedError(
                rows.BAD_MESSAGE, f"columns '{name}' and '{alias}' are two names of one thing, and they differ"
            )
    return found


@dataclass(frozen=True)
class _Given:
    """Responses as a record holds them, chosen first: where each stands, its value, and the scores of a group."""

    places: list[Place]
    values: list[Any]
    scores: list[float] | None = None

    @property
    def names(self) -> list[str]:
        return [place.name for place in self.places]


def _read(record: Mapping[str, Any], options: DataOptions) -> Example:
    given = _responses(record, options)
    prompt = _content(needed(record, "prompt"), "prompt") if "prompt" in record else None  # None: implied
    contents = [_content(value, name) for name, value in zip(given.names, given.values, strict=True)]
    if len(contents) > 1 and all(contents[0] == other for other in contents[1:]):
        raise RejectedError(rows.IDENTICAL, f"'{given.names[0]}' and '{given.names[1]}' are the same")
    prompt, contents = _one_form(prompt, contents, given.names, options)
    example = Example(
        prompt=prompt,
        responses=tuple(contents),
        prefix=fields.text_or_none(record, "initial_reason_steps"),
        complete=fields.flag(record, "complete"),
        tools=fields.tools(record),
        template_kwargs=fields.template_kwargs(record),
        marks=read_marks(record, given.places, options.needs),
        label=fields.flag(record, "label"),
        answer=None if record.get("answer") is None else str(record["answer"]),
    )
    if "label" in record and "completion" in record and example.label is None:
        raise RejectedError(rows.NULL_FIELD, "column 'label' holds nothing")
    if given.names == ["completion"] and example.label is False and not options.splits_pairs:
        raise RejectedError(rows.UNDESIRABLE, rows.REASONS[rows.UNDESIRABLE])
    example = _without_useless(_continued(_scored(example, record, given)), options, given.names)
    if options.responses == "single" and not options.splits_pairs:
        example = example.only((0,))
    check_needs(example.marks, options.needs or (), labelled=len(example.responses) > 1 or example.label is not None)
    return example


def _responses(record: Mapping[str, Any], options: DataOptions) -> _Given:
    if options.responses == "single" and not (options.splits_pairs and record.get("completion") is None):
        return _single(record)
    if "responses" in record and "chosen" not in record:
        return _group(record, ties=rows.EXTERNAL in (options.needs or ()))
    chosen, rejected = needed(record, "chosen"), needed(record, "rejected")
    listed = rejected if _is_several(rejected) else [rejected]
    several = [(Place("rejected", i, len(listed)), r) for i, r in enumerate(listed) if r is not None]
    if not several:
        raise RejectedError(rows.NULL_FIELD, "column 'rejected' is an empty list")
    return _Given([Place("chosen"), *(place for place, _ in several)], [chosen, *(value for _, value in several)])


def _single(record: Mapping[str, Any]) -> _Given:
    """The response of an unpaired record, or the chosen one of a pair; rejected ones are not read."""
    if record.get("completion") is not None or ("completion" in record and "chosen" not in record):
        return _Given([Place("completion")], [needed(record, "completion")])
    if "chosen" not in record and record.get("responses"):
        group = _group(record)
        return _Given(group.places[:1], group.values[:1], (group.scores or [])[:1])
    chosen, rejected = needed(record, "chosen"), record.get("rejected")
    if "prompt" not in record and rejected and not _is_several(rejected):  # the two together say where the prompt ends
        return _Given([Place("chosen"), Place("rejected")], [chosen, rejected])
    return _Given([Place("chosen")], [chosen])


def _group(record: Mapping[str, Any], *, ties: bool = False) -> _Given:
    """`responses` with `rewards`: the best one first, then those that are worse, best to worst.

    With `ties` those that are as good as the best one as well, for a loss that reads the rewards.
    """
    responses, rewards = needed(record, "responses"), needed(record, "rewards")
    if (
        not isinstance(responses, list)
        or not isinstance(rewards, list)
        or len(responses) != len(rewards)
        or not responses
    ):
        raise RejectedError(
            rows.BAD_MESSAGE, "'responses' and 'rewards' must be lists of the same length, one reward per response"
        )
    scores = [fields.number(r, "rewards") for r in rewards]
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    worse = [i for i in order[1:] if scores[i] < scores[order[0]]]
    if not worse and len(scores) > 1:
        raise RejectedError(rows.IDENTICAL, "all responses have the same reward")
    order = order if ties else [order[0], *worse]
    places = [Place("responses", i, len(scores)) for i in order]
    return _Given(places, [responses[i] for i in order], [scores[i] for i in order])


def _is_several(value: Any) -> bool:
    """A list of texts or of conversations; a list of messages is one conversation."""
    return isinstance(value, list) and not any(isinstance(item, Mapping) for item in value)


def _content(value: Any, name: str) -> Content:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return check_messages(value, name)
    raise RejectedError(rows.BAD_MESSAGE, f"column '{name}' must be text or messages; got {type(value).__name__}")


def _one_form(
    prompt: Content | None, contents: list[Content], names: Sequence[str], options: DataOptions
) -> tuple[Content, list[Content]]:
    """Prompt and responses in one form, an implied prompt made explicit."""
    texts = [c for c in contents if isinstance(c, str)]
    if isinstance(prompt, list) or len(texts) < len(contents):
        if options.template == "never":
            raise RejectedError(rows.BAD_MESSAGE, "the row holds messages, and data.template is 'never'")
        conversations = [wrapped(c, "assistant") if isinstance(c, str) else c for c in contents]
        messages = wrapped(prompt, "user") if isinstance(prompt, str) else prompt or []
        start, ends = split_messages(messages, conversations, names)
        return start, list(ends)
    text, rest = (prompt, texts) if prompt is not None else split_text(texts)
    if options.template != "always":
        return text, list(rest)
    if not text.strip():
        raise RejectedError(
            rows.BAD_MESSAGE, "data.template is 'always', and there is no prompt for the user's message"
        )
    return wrapped(text, "user"), [wrapped(end, "assistant") for end in rest]


def _continued(example: Example) -> Example:
    """A prompt that ends in an assistant message, followed by another: one turn, the first half of it given."""
    prompt = example.prompt
    if isinstance(prompt, str) or len(prompt) < 2 or prompt[-1]["role"] != "assistant" or prompt[-1].get("tool_calls"):
        return example
    firsts = [r[0] for r in example.responses if isinstance(r, list) and len(r) == 1]
    if (
        example.prefix is not None
        or len(firsts) < len(example.responses)
        or any(m["role"] != "assistant" for m in firsts)
    ):
        return example
    complete = True if example.complete is None else example.complete
    return replace(example, prompt=prompt[:-1], prefix=text_of(prompt[-1]), complete=complete).noted(
        rows.TURN_CONTINUED
    )


def _scored(example: Example, record: Mapping[str, Any], given: _Given) -> Example:
    """The example with the scores that came with it, one per response."""
    scores = given.scores
    if scores is None:
        chosen, rejected = record.get("score_chosen"), record.get("score_rejected")
        if chosen in (None, "") or (rejected in (None, "") and len(example.responses) > 1):
            return example
        others = [] if len(example.responses) == 1 else rejected if isinstance(rejected, list) else [rejected]
        scores = [fields.number(chosen, "score_chosen"), *(fields.number(s, "score_rejected") for s in others)]
    if len(scores) != len(example.responses):
        return example.noted(rows.SCORES_IGNORED)
    marks = tuple(replace(mark, external=score) for mark, score in zip(example.marks, scores, strict=True))
    return replace(example, marks=marks)


def _without_useless(example: Example, options: DataOptions, names: Sequence[str]) -> Example:
    """Refuse empty and equal responses; of several rejected ones, leave out those that are empty or repeated."""
    total = len(example.responses)
    empty = [r for r, content in enumerate(example.responses) if _is_empty(content)]
    useless = [r for r in empty if not options.allow_empty or example.responses[r] == []]
    if useless and (useless[0] == 0 or total <= 2):
        raise RejectedError(rows.EMPTY_ANSWER, f"'{names[useless[0]]}' has no text")
    keep: list[int] = []
    for r, content in enumerate(example.responses):
        if r not in useless and content not in [example.responses[k] for k in keep]:
            keep.append(r)
    if total > 1 and len(keep) == 1:
        raise RejectedError(rows.IDENTICAL, "no rejected response is left that differs from the chosen one")
    if len(keep) < total:
        example = example.only(keep).noted(rows.NEGATIVES_DROPPED)
    if options.responses == "pair" and len(keep) > 2 and options.negatives == "keep":
        raise DataError(
            f"the row has {len(keep) - 1} rejected responses, and this loss compares pairs. "
            "`data.negatives: expand` makes a pair of each; a loss that reads many responses takes them as they are."
        )
    return example.noted(rows.KEPT_EMPTY) if set(empty) & set(keep) else example


def _is_empty(content: Content) -> bool:
    return not content.strip() if isinstance(content, str) else not content or says_nothing(content[-1])
