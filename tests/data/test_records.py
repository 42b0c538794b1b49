"""Odd records: what is refused, under which reason, and what is accepted all the same."""

from __future__ import annotations

import math

import pytest

from prefopt.data import DataOptions, EncodedRow, Rejection, encode_prompt, encode_row
from prefopt.data.options import DataOptions as Options
from prefopt.errors import ConfigError, DataError

from .tokenizers import plain

U = {"role": "user", "content": "hello"}


def said(text: str) -> dict:
    return {"role": "assistant", "content": text}


def encode(record: dict, **options) -> EncodedRow | Rejection:
    return encode_row(record, plain(), DataOptions(max_length=None, **options))


def refused(record: dict, **options) -> Rejection:
    row = encode(record, **options)
    assert isinstance(row, Rejection), row
    return row


def kept(record: dict, **options) -> EncodedRow:
    row = encode(record, **options)
    assert isinstance(row, EncodedRow), row
    return row


def sides(row: EncodedRow) -> tuple[str, list[str]]:
    return plain().decode(row.prompt_ids), [plain().decode(ids).removesuffix("<|end|>") for ids in row.responses]


@pytest.mark.parametrize("empty", ["", "   ", "\n", "\t\n "])
def test_an_empty_answer_is_left_out_unless_it_is_allowed(empty: str) -> None:
    record = {"prompt": "the sky is", "chosen": " blue.", "rejected": empty}
    assert refused(record) == Rejection("empty_answer", "'rejected' has no text")
    row = kept(record, allow_empty=True)
    assert row.notes == ("kept_empty",)
    assert row.responses[1][-1] == plain().eos_token_id
    assert any(row.masks[1])
    assert refused({**record, "chosen": " ", "rejected": "x"}).detail == "'chosen' has no text"


def test_an_empty_answer_that_is_not_closed_has_no_token_to_score() -> None:
    record = {"prompt": "the sky is", "chosen": " blue.", "rejected": "", "complete": False}
    assert refused(record, allow_empty=True) == Rejection("empty_answer", "no token of a response can be scored")


@pytest.mark.parametrize(
    ("chosen", "rejected", "prompt", "answers"),
    [
        ("The cat", "The car", "The", [" cat", " car"]),
        ("The sk", "The sky", "The", [" sk", " sky"]),
        ("Paris ", "London", "", ["Paris ", "London"]),
        ("= 12", "= 13", "=", [" 12", " 13"]),
        ("Q: hi\n\nA: yes", "Q: hi\n\nA: no", "Q: hi\n\nA:", [" yes", " no"]),
        ("Q\nyes", "Q\nno", "Q\n", ["yes", "no"]),
        ("天空是蓝", "天空是红", "天空是", ["蓝", "红"]),
        ("cafe\u0301", "cafe\u0300", "", ["cafe\u0301", "cafe\u0300"]),
        ("a \U0001f44d\U0001f3fb", "a \U0001f44d\U0001f3fd", "a", [" \U0001f44d\U0001f3fb", " \U0001f44d\U0001f3fd"]),
    ],
)
def test_an_implied_prompt_ends_between_words(chosen: str, rejected: str, prompt: str, answers: list[str]) -> None:
    assert sides(kept({"chosen": chosen, "rejected": rejected})) == (prompt, answers)


@pytest.mark.parametrize(
    ("chosen", "rejected", "reason"),
    [
        ("The sky is blue", "The sky is blue", "identical"),
        ("The sky", "The sky is blue", "empty_answer"),
        ("", "The sky", "empty_answer"),
        ("The sky is", "", "empty_answer"),
    ],
)
def test_an_implied_prompt_that_leaves_no_answer_is_refused(chosen: str, rejected: str, reason: str) -> None:
    assert refused({"chosen": chosen, "rejected": rejected}).reason == reason


def test_conversations_split_between_messages_only() -> None:
    row = kept({"chosen": [U, said("The cat")], "rejected": [U, said("The car")]})
    assert sides(row) == ("<|user|>hello\n<|assistant|>", ["The cat", "The car"])
    assert refused({"chosen": [said("a")], "rejected": [said("b")]}).reason == "bad_message"
    other = {"chosen": [U, said("a")], "rejected": [{"role": "user", "content": "hey"}, said("b")]}
    assert refused(other) == Rejection(
        "bad_message", "there is no prompt, and no first message that chosen and rejected have in common"
    )
    assert refused({"chosen": [U, said("a")], "rejected": [U, said("a")]}).reason == "identical"
    longer = [U, said("a"), U, said("b")]
    assert refused({"chosen": [U, said("a")], "rejected": longer}).reason == "empty_answer"
    assert refused({"chosen": [U, said("a"), U], "rejected": [U, said("b")]}).detail == (
        "the last message of 'chosen' is from 'user', not from the assistant"
    )


@pytest.mark.parametrize("prompt", ["hello", [U]], ids=["text", "messages"])
@pytest.mark.parametrize("repeats", [False, True])
def test_a_prompt_that_the_conversations_repeat_is_taken_off_them(prompt, repeats: bool) -> None:
    first = [U] if repeats else []
    row = kept({"prompt": prompt, "chosen": [*first, said("The cat")], "rejected": [*first, said("The car")]})
    assert sides(row) == ("<|user|>hello\n<|assistant|>", ["The cat", "The car"])


SYSTEM = {"role": "system", "content": "kind"}
TWICE = "without repeating the prompt as it stands: the prompt would be there twice"


@pytest.mark.parametrize(
    ("prompt", "first", "role"),
    [
        ("hello ", [U], "user"),
        ([SYSTEM, U], [U], "user"),
        ("hello ", [SYSTEM, U], "system"),
        ([U, said("a"), U | {"content": "b"}], [U | {"content": "b"}], "user"),
    ],
)
def test_a_prompt_that_the_conversations_repeat_otherwise_is_not_asked_twice(prompt, first, role: str) -> None:
    record = {"prompt": prompt, "chosen": [*first, said("a")], "rejected": [*first, said("b")]}
    for responses in ("pair", "single", "many"):
        row = refused(record, responses=responses)
        assert row.reason == "bad_message"
        assert row.detail.startswith("the prompt ends with a 'user' message, and 'chosen' begins with")
        assert row.detail.endswith(f"a '{role}' message {TWICE}")
    completion = {"prompt": prompt, "completion": [*first, said("a")], "label": True}
    assert TWICE in refused(completion, responses="single").detail


def test_a_prompt_that_ends_with_an_answer_may_be_followed_by_a_question() -> None:
    more = U | {"content": "more"}
    record = {"prompt": [U, said("a")], "chosen": [more, said("b")], "rejected": [more, said("c")]}
    assert sides(kept(record)) == ("<|user|>hello\n<|assistant|>a<|end|>\n<|user|>more\n<|assistant|>", ["b", "c"])


def test_a_prompt_behind_a_system_message_is_found() -> None:
    system = {"role": "system", "content": "kind"}
    for extra in ({}, {"responses": "single"}):
        row = kept({"prompt": "hello", "chosen": [system, U, said("a")], "rejected": [system, U, said("b")]}, **extra)
        assert sides(row)[0] == "<|system|>kind\n<|user|>hello\n<|assistant|>"


@pytest.mark.parametrize(
    ("record", "column"),
    [
        ({"prompt": "a", "chosen": "b", "rejected": None}, "'rejected' holds nothing"),
        ({"prompt": None, "chosen": "b", "rejected": "c"}, "'prompt' holds nothing"),
        ({"prompt": "a", "rejected": "c"}, "'chosen' is missing"),
        ({"prompt": "a", "chosen": "b", "rejected": []}, "'rejected' is an empty list"),
        ({"prompt": "a", "chosen": [{"role": "assistant", "content": None}], "rejected": "c"}, "content null"),
    ],
)
def test_what_is_needed_and_missing_is_named(record: dict, column: str) -> None:
    row = refused(record)
    assert row.reason == "null_field"
    assert column in row.detail


@pytest.mark.parametrize(
    ("chosen", "what"),
    [
        (5, "must be text or messages; got int"),
        ({"role": "assistant"}, "must be text or messages; got dict"),
        ([{"content": "x"}], "message 1 of 'chosen' has no 'role'"),
        ([{"from": "gpt", "value": "x"}], "rename them to 'role' and 'content'"),
        ([{"role": "assistant"}], "has no 'content' and calls no tools"),
        ([{"role": "assistant", "content": 3}], "'content' must be text or a list of text parts"),
        ([{"role": "assistant", "content": [{"type": "image"}]}], "'content' must be text or a list of text parts"),
        (["x"], "must be an object with 'role' and 'content'; got str"),
    ],
)
def test_what_is_no_message_is_refused(chosen, what: str) -> None:
    row = refused({"prompt": [U], "chosen": chosen, "rejected": [said("b")]})
    assert row.reason == "bad_message"
    assert what in row.detail


def test_nulls_that_a_table_adds_inside_messages_are_removed() -> None:
    bare = {"prompt": [U], "chosen": [said("a")], "rejected": [said("b")]}
    filled = {
        "prompt": [U | {"name": None, "tool_calls": None}],
        "chosen": [said("a") | {"name": None, "meta": {"x": None}}],
        "rejected": [said("b") | {"tool_call_id": None}],
    }
    template = (
        plain().chat_template + "{% for m in messages %}{% if m.name is defined %}{{ 1/0 }}{% endif %}{% endfor %}"
    )
    assert sides(kept(filled, chat_template=template)) == sides(kept(bare))


def test_a_list_of_text_parts_is_text() -> None:
    parts = [{"type": "text", "text": "The "}, {"type": "text", "text": "cat"}]
    row = kept({"prompt": [U], "chosen": [{"role": "assistant", "content": parts}], "rejected": "x"})
    assert sides(row)[1] == ["The cat", "x"]


TOOLS = (
    "{% for t in tools or [] %}{{ t.name }};{% endfor %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}CALL {{ c.function.name }}{% endfor %}"
    "{% if m.role == 'assistant' %}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{{ 'T' if loud }}{% endif %}"
)


def test_tool_calls_without_content_are_a_message() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look", "arguments": {}}}]}
    result = {"role": "tool", "content": "blue"}
    record = {
        "prompt": [U],
        "chosen": [call, result, said("blue")],
        "rejected": [said("red")],
        "tools": [{"name": "look"}],
    }
    row = kept(record, chat_template=TOOLS, train_on="all_assistant")
    assert sides(row) == ("look;<|user|>hello<|assistant|>", ["CALL look<|end|><|tool|>blue<|assistant|>blue", "red"])
    scored = [i for i, m in zip(row.responses[0], row.masks[0], strict=True) if m]
    assert plain().decode(scored) == "CALL look<|end|>blue<|end|>"
    last = kept(record, chat_template=TOOLS)
    assert plain().decode([i for i, m in zip(last.responses[0], last.masks[0], strict=True) if m]) == "blue<|end|>"
    assert last.notes == ("turns_not_scored",)


def test_columns_for_the_template_reach_it() -> None:
    record = {"prompt": [U], "chosen": [said("a")], "rejected": [said("b")], "chat_template_kwargs": {"tone": "x"}}
    template = "{{ tone }}{% for m in messages %}{{ m.content }}|{% endfor %}"
    assert sides(kept(record, chat_template=template))[0] == "xhello|"
    assert sides(kept({**record, "chat_template_kwargs": '{"tone": "y"}'}, chat_template=template))[0] == "yhello|"
    for wrong in ({"tokenize": True}, "{", [1]):
        assert refused({**record, "chat_template_kwargs": wrong}).reason == "bad_message"
    assert refused({**record, "tools": "x"}).reason == "bad_message"


@pytest.mark.parametrize("score", [math.nan, math.inf, "nan"])
def test_a_score_that_is_no_number_is_refused(score) -> None:
    record = {"prompt": "a", "chosen": " b", "rejected": " c", "score_chosen": 1.0}
    assert refused({**record, "score_rejected": score}).reason == "nonfinite"
    assert refused({**record, "score_rejected": "high"}).reason == "bad_message"
    assert kept({**record, "score_rejected": "0.5"}).external == [1.0, 0.5]
    assert kept({**record, "score_rejected": None}).external is None


MANY = {"prompt": "the sky is", "chosen": " blue", "rejected": [" red", "", " blue", " green", " red", None]}


def test_several_rejected_responses() -> None:
    with pytest.raises(DataError, match=r"2 rejected responses, and this loss compares pairs.*negatives: expand"):
        encode(MANY)
    row = kept(MANY, responses="many")
    assert sides(row)[1] == [" blue", " red", " green"]
    assert row.notes == ("negatives_dropped",)
    assert sides(kept(MANY, responses="single"))[1] == [" blue"]
    assert refused({**MANY, "rejected": [" blue", " blue"]}).reason == "identical"
    assert sides(kept({**MANY, "rejected": [" red"]}))[1] == [" blue", " red"]
    conversations = {"prompt": [U], "chosen": [said("a")], "rejected": [[said("b")], [said("c")]]}
    assert sides(kept(conversations, responses="many"))[1] == ["a", "b", "c"]


def test_groups_are_ordered_by_reward() -> None:
    record = {"prompt": "the sky is", "responses": [" red", " blue", " green", " azure"], "rewards": [0, 1, 0.5, 1]}
    row = kept(record, responses="many")
    assert sides(row)[1] == [" blue", " green", " red"]
    assert row.external == [1.0, 0.5, 0.0]
    assert refused({**record, "rewards": [1, 1, 1, 1]}, responses="many").reason == "identical"
    assert refused({**record, "rewards": [1]}, responses="many").reason == "bad_message"
    assert refused({**record, "rewards": [1, 2, 3, math.nan]}, responses="many").reason == "nonfinite"
    assert sides(kept(record, responses="single"))[1] == [" blue"]


def test_unpaired_rows() -> None:
    record = {"prompt": "the sky is", "completion": " blue", "label": True, "answer": 3}
    row = kept(record, responses="single")
    assert (row.label, row.answer, sides(row)[1]) == (True, "3", [" blue"])
    for label in (False, 0, "0", "no"):
        assert refused({**record, "label": label}, responses="single") == Rejection(
            "undesirable", "a completion marked undesirable, which this loss would make likelier"
        )
    assert kept({"prompt": "a", "chosen": " b", "label": False}, responses="single").label is False
    assert refused({**record, "label": None}, responses="single").reason == "null_field"
    assert refused({**record, "label": "maybe"}, responses="single").reason == "bad_message"
    assert refused(record).detail == "column 'chosen' is missing"
    pair = {"chosen": "The cat", "rejected": "The car"}
    assert sides(kept(pair, responses="single")) == ("The", [" cat"])  # both sides say where the prompt ends
    chat = {"completion": [U, said("yes")], "label": 1}
    assert sides(kept(chat, responses="single")) == ("<|user|>hello\n<|assistant|>", ["yes"])


def test_two_names_of_the_beginning_of_an_answer_must_agree() -> None:
    record = {"prompt": "the sky", "chosen": " blue", "rejected": " red"}
    expected = kept({**record, "prefix": " is"})
    for same in (" is", None):
        assert kept({**record, "prefix": " is", "initial_reason_steps": same}) == expected
        assert kept({**record, "initial_reason_steps": " is", "prefix": same}) == expected
    for other in (" was", ""):
        differ = {**record, "prefix": " is", "initial_reason_steps": other}
        message = "columns 'initial_reason_steps' and 'prefix' are two names of one thing, and they differ"
        assert refused(differ) == Rejection("bad_message", message)
        assert encode_prompt(differ, plain(), DataOptions()) == Rejection("bad_message", message)


def test_a_prompt_alone_is_continued_from_its_prefix() -> None:
    ids = encode_prompt({"prompt": "the sky", "prefix": " is"}, plain(), DataOptions())
    assert plain().decode(ids) == "the sky is"


def test_when_text_is_wrapped_into_messages() -> None:
    record = {"prompt": "hello", "chosen": "a", "rejected": "b"}
    assert sides(kept(record))[0] == "hello"
    assert sides(kept(record, template="always"))[0] == "<|user|>hello\n<|assistant|>"
    assert refused({**record, "prompt": " "}, template="always").reason == "bad_message"
    assert "'never'" in refused({**record, "prompt": [U]}, template="never").detail


def test_a_prompt_that_ends_with_the_assistant_is_continued() -> None:
    row = kept({"prompt": [U, said("The cat")], "chosen": [said(" sat")], "rejected": [said(" ran")]})
    assert sides(row) == ("<|user|>hello\n<|assistant|>The cat", [" sat", " ran"])
    assert row.notes == ("turn_continued",)
    assert [ids[-1] for ids in row.responses] == [plain().eos_token_id] * 2


def test_options_are_checked() -> None:
    with pytest.raises(
        ConfigError, match=r"(?s)truncate must be one of .*'drp'\. Did you mean 'drop'.*max_length.*max_lost"
    ) as found:
        Options(truncate="drp", max_length=1, max_lost=2.0)
    assert len(found.value.problems) == 3
    with pytest.raises(DataError, match="neither a template nor a file"):
        encode({"prompt": "a", "chosen": "b", "rejected": "c"}, chat_template="no-such-file.jinja")
