"""Rows over length: each policy keeps what it promises, counts what it cuts, and invents no end token."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefopt.data import DataOptions, EncodedRow, Rejection, encode_row
from prefopt.errors import DataError

from .tokenizers import plain, with_bos

ROW = {"prompt": "the sky is", "chosen": " blue." * 10, "rejected": " green."}
EOS = plain().eos_token_id


def encode(record: dict, tokenizer=None, **options) -> EncodedRow | Rejection:
    return encode_row(record, tokenizer or plain(), DataOptions(**options))


def full(record: dict, tokenizer=None) -> EncodedRow:
    row = encode(record, tokenizer, max_length=None)
    assert isinstance(row, EncodedRow)
    return row


def test_a_row_that_just_fits_is_left_alone() -> None:
    row = full(ROW)
    assert encode(ROW, max_length=row.length, truncate="error") == row


def test_drop_leaves_the_row_out() -> None:
    row = encode(ROW, max_length=8)
    assert isinstance(row, Rejection)
    assert row.reason == "too_long"
    assert row.detail.endswith("tokens, the prompt 3 of them; data.max_length is 8")


def test_error_stops() -> None:
    with pytest.raises(DataError, match=r"record 1: \d+ tokens.*max_length is 8.*data\.truncate"):
        encode(ROW, max_length=8, truncate="error")


def test_a_cut_answer_has_no_end_token() -> None:
    row, whole = encode(ROW, max_length=8, truncate="response"), full(ROW)
    assert isinstance(row, EncodedRow)
    assert row.length == 8
    assert row.prompt_ids == whole.prompt_ids
    assert row.responses[0] == whole.responses[0][: len(row.responses[0])]
    assert EOS not in row.responses[0]
    assert row.responses[1] == whole.responses[1]
    assert row.notes == ("truncated_chosen", "end_lost_on_one_side")
    assert [len(mask) for mask in row.masks] == [len(ids) for ids in row.responses]


def test_a_cut_answer_has_an_end_token_when_asked_for() -> None:
    row, whole = encode(ROW, max_length=8, truncate="response", eos_on_cut=True), full(ROW)
    assert isinstance(row, EncodedRow)
    assert row.length == 8
    assert row.responses[0] == [*whole.responses[0][: len(row.responses[0]) - 1], EOS]
    step = encode(ROW | {"complete": False}, max_length=8, truncate="response", eos_on_cut=True)
    assert isinstance(step, EncodedRow)
    assert EOS not in step.responses[0]


def test_both_sides_cut() -> None:
    row = encode(ROW | {"rejected": " green." * 10}, max_length=8, truncate="response")
    assert isinstance(row, EncodedRow)
    assert row.notes == ("truncated_chosen", "truncated_rejected")


def test_answers_that_differ_only_behind_the_cut_are_left_out() -> None:
    record = ROW | {"rejected": " blue." * 9 + " red."}
    row = encode(record, max_length=8, truncate="response")
    assert isinstance(row, Rejection)
    assert row.reason == "identical_after_truncation"


@pytest.mark.parametrize("truncate", ["drop", "response"])
def test_a_prompt_that_fills_everything_leaves_no_row(truncate: str) -> None:
    row = encode(ROW | {"prompt": "the sky " * 20}, max_length=8, truncate=truncate)
    assert isinstance(row, Rejection)
    assert row.reason == "prompt_too_long"


def test_a_cut_in_front_of_the_scored_turn_leaves_no_answer() -> None:
    turns = [{"role": "assistant", "content": "the sky"}, {"role": "user", "content": "go on " * 9}]
    record = {
        "prompt": [{"role": "user", "content": "hello"}],
        "chosen": [*turns, {"role": "assistant", "content": "blue."}],
        "rejected": [{"role": "assistant", "content": "green."}],
    }
    row = encode(record, max_length=20, truncate="response")
    assert isinstance(row, Rejection)
    assert row.reason == "no_answer_after_truncation"
    assert isinstance(encode(record, max_length=20, truncate="response", train_on="all_assistant"), EncodedRow)


@pytest.mark.parametrize("bos", [False, True])
def test_a_prompt_loses_its_beginning_and_keeps_its_bos(bos: bool) -> None:
    tokenizer = with_bos() if bos else plain()
    record = ROW | {"prompt": "the cat sat on the mat, the sky is", "chosen": " blue."}
    whole = full(record, tokenizer)
    row = encode(record, tokenizer, max_length=whole.length - 3, truncate="prompt_start")
    assert isinstance(row, EncodedRow)
    assert row.length == whole.length - 3
    assert row.responses == whole.responses
    assert row.prompt_ids == whole.prompt_ids[:bos] + whole.prompt_ids[3 + bos :]
    assert row.notes == ("truncated_prompt",)
    alone = encode(record, tokenizer, max_length=max(map(len, whole.responses)) + bos, truncate="prompt_start")
    assert isinstance(alone, Rejection)
    assert alone.reason == "too_long"


def test_of_several_rejected_those_that_become_equal_go() -> None:
    record = ROW | {"rejected": [" green." * 10, " green." * 9 + " red.", " red."]}
    row = encode(record, max_length=8, truncate="response", responses="many")
    assert isinstance(row, EncodedRow)
    assert len(row.responses) == len(row.masks) == len(row.ends) == 3
    assert "negatives_dropped" in row.notes


WORDS = st.lists(st.sampled_from(["the", " sky", " is", " blue.", "\n"]), min_size=1, max_size=12).map("".join)


@settings(max_examples=200, deadline=None)
@given(
    prompt=WORDS,
    chosen=WORDS,
    rejected=WORDS,
    limit=st.integers(2, 16),
    truncate=st.sampled_from(["drop", "response", "prompt_start"]),
    eos_on_cut=st.booleans(),
    bos=st.booleans(),
)
def test_whatever_the_policy_rows_fit_and_are_parts_of_the_whole(
    prompt: str, chosen: str, rejected: str, limit: int, truncate: str, eos_on_cut: bool, bos: bool
) -> None:
    tokenizer = with_bos() if bos else plain()
    record = {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    whole = encode(record, tokenizer, max_length=None)
    row = encode(record, tokenizer, max_length=limit, truncate=truncate, eos_on_cut=eos_on_cut)
    if isinstance(whole, Rejection) or isinstance(row, Rejection):
        assert isinstance(row, Rejection)
        return
    assert row.length <= limit
    assert row.prompt_ids
    assert row.responses[0] != row.responses[1]
    assert row.prompt_ids[-1] == whole.prompt_ids[-1]
    if bos:
        assert row.prompt_ids[0] == tokenizer.bos_token_id
    for r in (0, 1):
        assert len(row.masks[r]) == len(row.responses[r])
        assert any(row.masks[r])
        cut = row.responses[r] != whole.responses[r]
        kept = row.responses[r][: len(row.responses[r]) - (cut and eos_on_cut)]
        assert whole.responses[r][: len(kept)] == kept
        assert (row.responses[r][-1] == tokenizer.eos_token_id) == (eos_on_cut or not cut)
        assert cut == (("truncated_chosen", "truncated_rejected")[r] in row.notes)
