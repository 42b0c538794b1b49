"""Plain text: bytes kept, one BOS, one end token, and a boundary that all responses share."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from prefopt.data import DataOptions, EncodedRow, Rejection, encode_prompt, encode_row
from prefopt.data.tokens import common_length

from .tokenizers import REAL, build, plain, real, with_bos

OPTIONS = DataOptions(max_length=None)
SKY = {"prompt": "the sky i", "chosen": "s blue.", "rejected": "s green."}


def kept(record: dict, tokenizer: PreTrainedTokenizerBase, options: DataOptions = OPTIONS) -> EncodedRow:
    row = encode_row(record, tokenizer, options)
    assert isinstance(row, EncodedRow), row
    return row


def text(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def tokenizers() -> list:
    return [pytest.param(plain, id="plain"), pytest.param(with_bos, id="with_bos")] + [
        pytest.param(lambda name=name: real(name), id=name) for name in REAL
    ]


@pytest.mark.parametrize("tokenizer", tokenizers())
def test_a_token_that_spans_prompt_and_answer_counts_with_the_answer(tokenizer) -> None:
    tokenizer = tokenizer()
    row = kept(SKY, tokenizer)
    bos = [tokenizer.bos_token_id] if row.prompt_ids[:1] == [tokenizer.bos_token_id] else []
    for side, answer in zip(row.responses, ("s blue.", "s green."), strict=True):
        assert side[-1] == tokenizer.eos_token_id
        assert side.count(tokenizer.eos_token_id) == 1
        assert (
            row.prompt_ids + side[:-1] == bos + tokenizer("the sky i" + answer, add_special_tokens=False)["input_ids"]
        )
    prompt = bos + tokenizer("the sky i", add_special_tokens=False)["input_ids"]
    assert row.prompt_ids == prompt[: len(row.prompt_ids)]
    assert ("boundary_moved" in row.notes) == (len(row.prompt_ids) < len(prompt)) == (row.moved > 0)


def test_the_boundary_moves_for_both_sides_when_tokens_merge_on_one_of_them() -> None:
    tokenizer = plain()
    row = kept({"prompt": "the sky i", "chosen": "s blue.", "rejected": "f green."}, tokenizer)
    assert text(tokenizer, row.prompt_ids) == "the sky"
    assert row.moved == 2  # the characters " i"
    assert [text(tokenizer, ids[:-1]) for ids in row.responses] == [" is blue.", " if green."]
    assert all(all(mask) for mask in row.masks)


@pytest.mark.parametrize("tokenizer", tokenizers())
def test_tokenized_apart_the_prompt_keeps_its_tokens_and_no_space_comes_in(tokenizer) -> None:
    tokenizer = tokenizer()
    row = kept(SKY, tokenizer, DataOptions(split="separate"))
    special = {tokenizer.bos_token_id}
    assert [i for i in row.prompt_ids if i not in special] == tokenizer("the sky i", add_special_tokens=False)[
        "input_ids"
    ]
    assert text(tokenizer, row.prompt_ids + row.responses[0][:-1]).removeprefix("<s>").strip() == "the sky is blue."
    assert row.moved == 0


WHITE = ["\n", "\t", "  ", " \n\t", ""]


@pytest.mark.parametrize("tokenizer", tokenizers())
def test_white_space_is_kept_byte_for_byte(tokenizer) -> None:
    tokenizer = tokenizer()
    for before in WHITE:
        for after in WHITE:
            record = {
                "prompt": f"{before}def f(x):{after}",
                "chosen": f"{before}\treturn x{after}",
                "rejected": f"{after}pass",
            }
            row = kept(record, tokenizer)
            for ids, side in zip(row.responses, ("chosen", "rejected"), strict=True):
                whole = text(tokenizer, [i for i in row.prompt_ids if i != tokenizer.bos_token_id] + ids[:-1])
                assert whole == record["prompt"] + record[side]


LETTERS = st.one_of(
    st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40),
    st.lists(
        st.sampled_from([" ", "\n", "the", "sky", " is", "s", "i", "St", "ep", "1", "é", "<s", ">"]), max_size=8
    ).map("".join),
)


@settings(max_examples=300, deadline=None)
@given(
    prompt=LETTERS, chosen=LETTERS, rejected=LETTERS, bos=st.booleans(), split=st.sampled_from(["joint", "separate"])
)
def test_any_text_rebuilds_itself(prompt: str, chosen: str, rejected: str, bos: bool, split: str) -> None:
    tokenizer = with_bos() if bos else plain()
    row = encode_row(
        {"prompt": prompt, "chosen": chosen, "rejected": rejected}, tokenizer, DataOptions(max_length=None, split=split)
    )
    if isinstance(row, Rejection):
        assert row.reason in ("empty_answer", "identical")
        return
    if "bos_in_text" in row.notes:
        return
    for ids, answer, mask in zip(row.responses, (chosen, rejected), row.masks, strict=True):
        assert text(tokenizer, row.prompt_ids[bos:] + ids[:-1]) == prompt + answer
        assert ids[-1] == tokenizer.eos_token_id
        assert len(mask) == len(ids)
        assert all(mask[1:])
        assert mask[0] == bool(row.prompt_ids)
    if bos:
        assert row.prompt_ids[0] == tokenizer.bos_token_id


def test_a_bos_that_prompt_and_response_form_together_is_said() -> None:
    row = kept({"prompt": "<s", "chosen": "0", "rejected": ">"}, with_bos())
    assert "bos_in_text" in row.notes


def test_a_bos_in_the_text_is_not_doubled() -> None:
    tokenizer = with_bos()
    row = kept({"prompt": "<s><|user|>hello<|assistant|>", "chosen": "fine", "rejected": "<s>no"}, tokenizer)
    assert (row.prompt_ids + row.responses[0]).count(tokenizer.bos_token_id) == 1
    assert (row.prompt_ids + row.responses[1]).count(tokenizer.bos_token_id) == 1
    assert row.prompt_ids[0] == tokenizer.bos_token_id
    assert row.notes == ("bos_in_text",)


def test_a_tokenizer_without_bos_puts_nothing_in_front() -> None:
    row = kept(SKY, plain())
    assert plain().bos_token_id is None
    assert None not in row.prompt_ids
    assert row.prompt_ids == plain()("the sky")["input_ids"]


def test_a_bos_that_the_tokenizer_does_not_use_by_itself_is_not_used_here_either() -> None:
    tokenizer = build(bos="<s>", adds_bos=False)
    assert kept(SKY, tokenizer).prompt_ids == tokenizer("the sky")["input_ids"]


def test_text_that_ends_with_an_end_token_gets_no_second_one() -> None:
    tokenizer = build(special=("<|end|>", "<|eot|>"))
    row = kept({"prompt": "hello", "chosen": " fine<|end|>", "rejected": " no<|eot|>"}, tokenizer)
    assert row.responses[0].count(tokenizer.eos_token_id) == 1
    assert row.responses[1][-1] == tokenizer.convert_tokens_to_ids("<|eot|>")
    appended = kept(
        {"prompt": "hello", "chosen": " fine<|end|>", "rejected": " no<|eot|>"}, tokenizer, DataOptions(eos="append")
    )
    assert [ids[-1] for ids in appended.responses] == [tokenizer.eos_token_id] * 2
    assert appended.responses[0].count(tokenizer.eos_token_id) == 1


def test_masks_do_not_come_from_comparing_with_the_padding_token() -> None:
    tokenizer = plain()
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    row = kept({"prompt": "hello<|end|>", "chosen": "a<|end|>b", "rejected": "c"}, tokenizer)
    assert all(all(mask) for mask in row.masks)
    assert row.prompt_ids[-1] == tokenizer.eos_token_id


def test_without_a_context_the_first_token_is_not_scored() -> None:
    row = kept({"prompt": "", "chosen": "Paris ", "rejected": "London"}, plain())
    assert row.prompt_ids == []
    assert [mask[0] for mask in row.masks] == [False, False]
    assert all(all(mask[1:]) for mask in row.masks)
    assert row.notes == ("first_token_unscored",)
    assert kept({"prompt": "", "chosen": "Paris ", "rejected": "London"}, with_bos()).notes == ()


def test_a_tokenizer_without_an_end_token_leaves_answers_open_and_says_so() -> None:
    row = kept(SKY, build(eos=None, pad=None))
    assert "no_end_token" in row.notes
    assert row.ends == [None, None]


STEP = {
    "prompt": "Solve 2+3*4\n",
    "initial_reason_steps": "Step 1: 3*4=12. ",
    "chosen": "Step 2: 2+12=14.",
    "rejected": "Step 2: 2*12=24.",
}


@pytest.mark.parametrize("name", ["initial_reason_steps", "prefix"])
def test_a_step_pair_continues_the_answer_and_is_not_closed(name: str) -> None:
    tokenizer = plain()
    record = {name if key == "initial_reason_steps" else key: value for key, value in STEP.items()}
    row = kept(record, tokenizer)
    for ids, side in zip(row.responses, ("chosen", "rejected"), strict=True):
        assert text(tokenizer, row.prompt_ids + ids) == "Solve 2+3*4\nStep 1: 3*4=12. " + STEP[side]
        assert ids[-1] != tokenizer.eos_token_id
    assert row.ends == [None, None]


@pytest.mark.parametrize(
    ("eos", "complete", "prefix", "closed"),
    [
        ("auto", None, True, False),
        ("auto", None, False, True),
        ("auto", True, True, True),
        ("auto", False, False, False),
        ("append", None, True, True),
        ("append", False, True, False),
        ("append", False, False, False),
        ("never", None, False, False),
        ("never", True, True, False),
    ],
)
def test_who_decides_about_the_end_token(eos: str, complete: bool | None, prefix: bool, closed: bool) -> None:
    record = {key: value for key, value in STEP.items() if prefix or key != "initial_reason_steps"} | {
        "complete": complete
    }
    for chat in (False, True):
        row = kept(record, plain(), DataOptions(eos=eos, template="always" if chat else "auto"))
        assert [ids[-1] == plain().eos_token_id for ids in row.responses] == [closed, closed]


def test_steps_are_labelled_by_the_characters_of_their_tokens() -> None:
    tokenizer = plain()
    chosen, rejected = "Step 1: 3*4=12. Step 2: 2+12=14.", "the answer is 14."
    spans = [[0, 16], [16, 32]]
    record = {
        "prompt": "Solve.\n",
        "chosen": chosen,
        "rejected": rejected,
        "chosen_steps": spans,
        "rejected_steps": [[4, 10]],
    }
    row = kept(record, tokenizer)
    assert row.steps is not None
    pieces = [
        text(tokenizer, [i for i, s in zip(row.responses[0], row.steps[0], strict=True) if s == k]) for k in (0, 1)
    ]
    assert "".join(pieces) == chosen
    assert pieces[1].strip().startswith("2: 2+12")  # " Step" is one token here with the period before it
    assert row.steps[0][-1] == -1  # the end token
    assert (
        text(tokenizer, [i for i, s in zip(row.responses[1], row.steps[1], strict=True) if s == 0]).strip() == "answer"
    )


@pytest.mark.parametrize(
    "spans", [[[0, 99]], [[5, 2]], [[0, 4], [2, 6]], [[-1, 2]], [[0]], "no json", [["a", "b"]]], ids=str
)
def test_step_spans_that_cannot_be_are_refused(spans) -> None:
    record = {**SKY, "chosen_steps": spans, "rejected_steps": [[0, 1]]}
    row = encode_row(record, plain(), OPTIONS)
    assert isinstance(row, Rejection)
    assert row.reason == "bad_message"


def test_prompts_for_generation_are_the_contexts_of_training() -> None:
    tokenizer = with_bos()
    for record in (SKY | {"chosen": " s blue."}, STEP | {"prompt": [{"role": "user", "content": "Solve."}]}):
        prompt = encode_prompt(
            {k: record[k] for k in ("prompt", "initial_reason_steps") if k in record}, tokenizer, OPTIONS
        )
        assert isinstance(prompt, list)
        row = kept(record, tokenizer)
        assert prompt[: len(row.prompt_ids)] == row.prompt_ids
        assert prompt == encode_prompt(record, tokenizer, OPTIONS)
    assert common_length([[1, 2], [1, 3]]) == 1


def test_messages_need_a_chat_template(caplog) -> None:
    from prefopt.errors import DataError

    tokenizer = build(template=None)
    messages = {"prompt": [{"role": "user", "content": "hi"}], "chosen": "a", "rejected": "b"}
    with pytest.raises(DataError, match=r"record 1: .*no chat template.*data\.chat_template"):
        encode_row(messages, tokenizer, OPTIONS)
    with caplog.at_level(logging.ERROR):
        assert isinstance(encode_row(SKY, tokenizer, OPTIONS), EncodedRow)


@pytest.mark.parametrize("half", ["\ud83d", "a\udc00b"])
def test_half_of_a_surrogate_pair_is_refused(half: str) -> None:
    row = encode_row({"prompt": "a", "chosen": half, "rejected": "b"}, plain(), OPTIONS)
    assert isinstance(row, Rejection)
    assert row.reason == "bad_message"
