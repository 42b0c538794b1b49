"""The tokenized row and the names of its columns, once; the columns of a record; the reasons why a record gives no row.

A row is what the collator, the reference cache and the evaluation read. Rows are final: nothing is cut or added later.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Final, NamedTuple, NotRequired, TypedDict

ID: Final = "id"
PROMPT_IDS: Final = "prompt_ids"
RESPONSES: Final = "responses"
MASKS: Final = "masks"
LENGTH: Final = "length"
ANSWER: Final = "answer"
LABEL: Final = "label"
STEPS: Final = "steps"
STEP_REWARDS: Final = "step_rewards"
WEIGHTS: Final = "weights"
TOKEN_SCORES: Final = "token_scores"
DIFF: Final = "diff"
EXTERNAL: Final = "external"
DEVIATION: Final = "deviation"
REFERENCE_SUMS: Final = "reference_sums"
EXTRA: Final = "extra"

ALWAYS: Final = (ID, PROMPT_IDS, RESPONSES, MASKS, LENGTH)
PER_TOKEN: Final[dict[str, Any]] = {STEPS: -1, WEIGHTS: 1.0, TOKEN_SCORES: math.nan, DIFF: False}
"""Columns with a value for each token of each response, and what an end token has that was added to it."""

PER_RESPONSE: Final[dict[str, Any]] = {
    STEP_REWARDS: [],
    EXTERNAL: math.nan,
    DEVIATION: math.nan,
    REFERENCE_SUMS: math.nan,
}
"""Columns with a value for each response, and what one has that is not known."""

OPTIONAL: Final = (ANSWER, LABEL, *PER_TOKEN, *PER_RESPONSE, EXTRA)
"""Columns that a data set has when at least one of its rows has a value for them."""

INDEX: Final = "index"
WEIGHT: Final = "weight"
MISMATCHED: Final = "mismatched"
"""Keys that the data loader adds to a row: its number in the data set, its weight (0 for a filler), and the ids of
another prompt's response where a loss asks for such pairs.
"""

OUTSIDE: Final = -1
"""Step index of a token that belongs to no step."""


class Row(TypedDict):
    """One tokenized row. R responses, 0 is the chosen one (or the only one).

    `prompt_ids` is the context of every response, its BOS included. `masks[r][t]` says whether token t of response r is
    scored. `length` is the longest prompt + response, in tokens. `steps[r][t]` is the step of a token, -1 outside, and
    `step_rewards[r][s]` the reward of a step. `weights`, `token_scores` (NaN where there is none) and `diff` are per
    token too. `label` says of a single response whether it is desirable. `external` are scores given with the record,
    `deviation` how far a response stands from the prompt's others (NaN where it is not known), `reference_sums` the
    reference's log-probability of each response, nats. `extra` is JSON text: the record's columns that were not read.
    """

    id: str
    prompt_ids: list[int]
    responses: list[list[int]]
    masks: list[list[bool]]
    length: int
    answer: NotRequired[str | None]
    label: NotRequired[bool | None]
    steps: NotRequired[list[list[int]] | None]
    step_rewards: NotRequired[list[list[float]] | None]
    weights: NotRequired[list[list[float]] | None]
    token_scores: NotRequired[list[list[float]] | None]
    diff: NotRequired[list[list[bool]] | None]
    external: NotRequired[list[float] | None]
    deviation: NotRequired[list[float] | None]
    reference_sums: NotRequired[list[float] | None]
    extra: NotRequired[str | None]


MARKS: Final = (STEPS, STEP_REWARDS, WEIGHTS, TOKEN_SCORES, DIFF, DEVIATION, REFERENCE_SUMS)
"""What a record may say of each response, by the name of the row's column."""

LABELS: Final = "labels"
"""What a loss calls its need of `LABEL`; its needs of other columns have the columns' names."""

FIRST_ERROR: Final = "first_error_step"


def column_of(response: str, mark: str) -> str:
    """The record's column that holds a mark of the response in another column: `chosen_steps` of `chosen`."""
    if mark == REFERENCE_SUMS:  # as TRL names them
        return f"ref_{response}_logps"
    return f"diff_spans_{response}" if mark == DIFF else f"{response}_{mark}"


_MARK_COLUMNS: Final = {
    mark: tuple(
        column_of(response, mark)
        for response in ("chosen", "rejected", "responses", *(["completion"] if mark == REFERENCE_SUMS else []))
        if (mark, response) != (DIFF, "responses")
    )
    for mark in MARKS
}

_PLAIN_COLUMNS: Final = (
    "id",
    "prompt",
    "chosen",
    "rejected",
    "completion",
    "label",
    "responses",
    "rewards",
    "initial_reason_steps",
    "complete",
    "tools",
    "chat_template_kwargs",
    "answer",
    "score_chosen",
    "score_rejected",
)

READ_COLUMNS: Final = (*_PLAIN_COLUMNS, FIRST_ERROR, *(name for names in _MARK_COLUMNS.values() for name in names))
"""Columns of a record that become part of a row."""


def read_columns(needs: Collection[str] | None) -> frozenset[str]:
    """Columns that are read when a loss has these needs; when its needs are not known, all but the reference's sums."""
    if needs is None:
        return frozenset(READ_COLUMNS) - {*_MARK_COLUMNS[REFERENCE_SUMS]}
    marks = [name for mark in marks_read(needs) for name in _MARK_COLUMNS[mark]]
    return frozenset([*_PLAIN_COLUMNS, *marks, *([FIRST_ERROR] if STEP_REWARDS in needs else [])])


def marks_read(needs: Collection[str] | None) -> list[str]:
    """The marks that are read when a loss has these needs; step rewards are nothing without the steps."""
    if needs is None:  # sums of a reference are read only for whoever asks for them
        return [mark for mark in MARKS if mark != REFERENCE_SUMS]
    return [m for m in MARKS if m in needs or (m == STEPS and STEP_REWARDS in needs)]


ALIASES: Final = {"prefix": "initial_reason_steps"}
"""Other names that are understood without a column map."""


class Needed(NamedTuple):
    """What a loss may need beside the responses, in words, and the sets of columns each of which gives it."""

    words: str
    columns: tuple[tuple[str, ...], ...]

    @property
    def where(self) -> str:
        """`columns a and b, or c`."""
        return f"columns {', or '.join(' and '.join(names) for names in self.columns)}"


NEEDED: Final = {
    STEPS: Needed("step labels", (("chosen_steps", "rejected_steps"), ("responses_steps",))),
    STEP_REWARDS: Needed(
        "step rewards",
        (("chosen_step_rewards", "rejected_step_rewards"), (FIRST_ERROR,), ("responses_step_rewards",)),
    ),
    WEIGHTS: Needed("token weights", (("chosen_weights",), ("rejected_weights",), ("responses_weights",))),
    TOKEN_SCORES: Needed("token scores", (("rejected_token_scores",), ("responses_token_scores",))),
    DIFF: Needed("two responses that differ", (("diff_spans_chosen", "diff_spans_rejected"), ("chosen", "rejected"))),
    EXTERNAL: Needed("scores of a reward model", (("score_chosen", "score_rejected"), ("responses", "rewards"))),
    DEVIATION: Needed("deviation weights", (("chosen_deviation",), ("responses_deviation",))),
    REFERENCE_SUMS: Needed(
        "sums of reference log-probabilities",
        (("ref_chosen_logps", "ref_rejected_logps"), ("ref_responses_logps",), ("ref_completion_logps",)),
    ),
    LABELS: Needed(
        "desirable/undesirable labels", (("completion", "label"), ("chosen", "rejected"), ("responses", "rewards"))
    ),
}

# Why a record gives no row.
EMPTY_ANSWER: Final = "empty_answer"
IDENTICAL: Final = "identical"
IDENTICAL_CUT: Final = "identical_after_truncation"
NO_ANSWER_LEFT: Final = "no_answer_after_truncation"
PROMPT_TOO_LONG: Final = "prompt_too_long"
TOO_LONG: Final = "too_long"
BAD_MESSAGE: Final = "bad_message"
NULL_FIELD: Final = "null_field"
BOUNDARY_MISMATCH: Final = "boundary_mismatch"
NONFINITE: Final = "nonfinite"
UNDESIRABLE: Final = "undesirable"
STEP_MISMATCH: Final = "step_mismatch"
TOKEN_MISMATCH: Final = "token_mismatch"

REASONS: Final = {
    EMPTY_ANSWER: "a response without text",
    IDENTICAL: "chosen and rejected are the same",
    IDENTICAL_CUT: "chosen and rejected are the same once they are cut to max_length",
    NO_ANSWER_LEFT: "nothing of a response is left within max_length",
    PROMPT_TOO_LONG: "the prompt leaves no room for a response within max_length",
    TOO_LONG: "prompt and response together are longer than max_length",
    BAD_MESSAGE: "a message, a conversation or another column has a form that cannot be read",
    NULL_FIELD: "a column that is needed holds nothing",
    BOUNDARY_MISMATCH: "prompt and response do not rebuild the conversation as the chat template renders it",
    NONFINITE: "a score that is not a finite number",
    UNDESIRABLE: "a completion marked undesirable, which this loss would make likelier",
    STEP_MISMATCH: "step rewards or a first wrong step that do not fit the steps",
    TOKEN_MISMATCH: "values for tokens that were made for other tokens",
}

# What happened to rows that are kept.
TRUNCATED_CHOSEN: Final = "truncated_chosen"
TRUNCATED_REJECTED: Final = "truncated_rejected"
TRUNCATED_PROMPT: Final = "truncated_prompt"
END_LOST_ONE_SIDE: Final = "end_lost_on_one_side"
BOUNDARY_MOVED: Final = "boundary_moved"
FIRST_TOKEN_UNSCORED: Final = "first_token_unscored"
KEPT_EMPTY: Final = "kept_empty"
BOS_IN_TEXT: Final = "bos_in_text"
NEGATIVES_DROPPED: Final = "negatives_dropped"
TURNS_NOT_SCORED: Final = "turns_not_scored"
TURN_CONTINUED: Final = "turn_continued"
THINKING_RESTORED: Final = "thinking_restored"
SCORES_IGNORED: Final = "scores_ignored"
NO_END_TOKEN: Final = "no_end_token"
DUPLICATE_ID: Final = "duplicate_id"
PAIR_SPLIT: Final = "pair_split"
DIFF_FOUND: Final = "diff_found"
UNKNOWN_TOKENS: Final = "unknown_tokens"

NOTES: Final = {
    TRUNCATED_CHOSEN: "chosen responses were cut at max_length",
    TRUNCATED_REJECTED: "rejected responses were cut at max_length",
    TRUNCATED_PROMPT: "prompts lost their beginning to max_length",
    END_LOST_ONE_SIDE: "rows lost the end of the answer on one side only, which favours one length",
    BOUNDARY_MOVED: "rows have a token that spans prompt and response; it counts with the response",
    FIRST_TOKEN_UNSCORED: "rows have no context and no BOS; the first token of their responses is not scored",
    KEPT_EMPTY: "rows with an empty response were kept, as allow_empty says",
    BOS_IN_TEXT: "rows hold the BOS token in their text; only one is kept, at the start",
    NEGATIVES_DROPPED: "rows lost some of several rejected responses, which were empty or repeated",
    TURNS_NOT_SCORED: "rows have further assistant turns in a response; train_on: last scores the last one only",
    TURN_CONTINUED: "rows continue the assistant message that ends their prompt",
    THINKING_RESTORED: "rows hold thinking that the chat template would drop; it is kept as written",
    SCORES_IGNORED: "rows have scores that do not match their responses in number; the scores are not used",
    NO_END_TOKEN: "rows end without an end token, because the tokenizer has none",
    DUPLICATE_ID: "ids occurred more than once and were made unique",
    PAIR_SPLIT: "records with several responses became a desirable row, of the chosen one, and undesirable ones",
    DIFF_FOUND: "rows have no difference spans; their tokens were compared by id",
    UNKNOWN_TOKENS: "rows have a response of mostly unknown tokens, to which the tokenizer maps what it does not know",
}
