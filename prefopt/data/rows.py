"""The tokenized row and the names of its columns, once; the columns of a record; the reasons why a record gives no row.

A row is what the collator, the reference cache and the evaluation read. Rows are final: nothing is cut or added later.
"""

from __future__ import annotations

from typing import Final, NotRequired, TypedDict

ID: Final = "id"
PROMPT_IDS: Final = "prompt_ids"
RESPONSES: Final = "responses"
MASKS: Final = "masks"
LENGTH: Final = "length"
ANSWER: Final = "answer"
LABEL: Final = "label"
STEPS: Final = "steps"
EXTERNAL: Final = "external"
EXTRA: Final = "extra"

ALWAYS: Final = (ID, PROMPT_IDS, RESPONSES, MASKS, LENGTH)
OPTIONAL: Final = (ANSWER, LABEL, STEPS, EXTERNAL, EXTRA)
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
    scored. `length` is the longest prompt + response, in tokens. `steps[r][t]` is the step of a token, -1 outside.
    `label` says of a single response whether it is desirable. `external` are scores given with the record. `extra` is
    JSON text: the record's columns that were not read.
    """

    id: str
    prompt_ids: list[int]
    responses: list[list[int]]
    masks: list[list[bool]]
    length: int
    answer: NotRequired[str | None]
    label: NotRequired[bool | None]
    steps: NotRequired[list[list[int]] | None]
    external: NotRequired[list[float] | None]
    extra: NotRequired[str | None]


READ_COLUMNS: Final = (
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
    "chosen_steps",
    "rejected_steps",
    "score_chosen",
    "score_rejected",
)
"""Columns of a record that become part of a row."""

ALIASES: Final = {"prefix": "initial_reason_steps"}
"""Other names that are understood without a column map."""

KEPT_COLUMNS: Final = (
    "first_error_step",
    "chosen_deviation",
    "rejected_deviation",
    "chosen_step_rewards",
    "rejected_step_rewards",
    "chosen_token_scores",
    "rejected_token_scores",
    "diff_spans_chosen",
    "diff_spans_rejected",
)
"""Columns of a record that have a meaning here and are kept under `extra`."""

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
}
