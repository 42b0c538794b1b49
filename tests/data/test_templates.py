"""Chat templates: what holds for every row, with real tokenizers and data, and with trl's templates for text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from prefopt.data import DataOptions, EncodedRow, Encoder, Rejection, encode_prompt, encode_row

from .tokenizers import ENDS, REAL, plain, real, real_data, templated

OPTIONS = DataOptions(max_length=None)
ALL_TURNS = DataOptions(max_length=None, train_on="all_assistant")
THOUGHT = "<think>\nhello, how\n</think>\n\n"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def ids_of(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, Any]], **options: Any) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def check_row(tokenizer: PreTrainedTokenizerBase, record: dict[str, Any], row: EncodedRow) -> None:
    """What holds for a row of whole answers of one turn: it is the rendered conversation, cut at its one end token."""
    for side, ids, mask in zip(("chosen", "rejected"), row.responses, row.masks, strict=True):
        rendered = ids_of(tokenizer, record["prompt"] + record[side])
        whole = row.prompt_ids + ids
        closed = rendered[: len(whole)] == whole
        if closed:  # what the template writes behind the end token is white space
            assert not tokenizer.decode(rendered[len(whole) :]).strip()
        else:  # a template without an end token: it is added
            assert whole == [*rendered, tokenizer.eos_token_id]
        assert ids[-1] in tokenizer.all_special_ids or ids[-1] in _special(tokenizer)
        assert ids.count(tokenizer.eos_token_id) <= 1
        assert all(mask)
        assert len(mask) == len(ids)
        answer = record[side][-1]["content"].strip()
        assert answer in tokenizer.decode(ids)
        assert answer not in tokenizer.decode(row.prompt_ids)
    generation = ids_of(tokenizer, record["prompt"], add_generation_prompt=True)
    assert row.prompt_ids == generation[: len(row.prompt_ids)]


def _special(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    return {id_ for id_, token in tokenizer.added_tokens_decoder.items() if token.special}


def real_pairs(count: int) -> Iterator[dict[str, Any]]:
    with real_data("gsm8k_pairs.jsonl").open(encoding="utf-8") as file:
        for line in islice(file, count):
            yield json.loads(line)


@pytest.mark.parametrize("name", REAL)
def test_every_row_of_real_data_rebuilds_the_rendered_conversation(name: str) -> None:
    tokenizer, checked = real(name), 0
    records = list(real_pairs(250))
    for record, found in zip(records, Encoder(tokenizer, OPTIONS).encode(records), strict=True):
        (row,) = found
        if isinstance(row, Rejection):
            assert row.reason in ("identical", "empty_answer")
            continue
        checked += 1
        for side, ids in zip(("chosen", "rejected"), row.responses, strict=True):
            rendered = ids_of(tokenizer, record["prompt"] + record[side])
            whole = row.prompt_ids + ids
            assert rendered[: len(whole)] == whole
            assert not tokenizer.decode(rendered[len(whole) :]).strip()
            assert ids[-1] == tokenizer.eos_token_id
            assert ids.count(tokenizer.eos_token_id) == 1
            assert (
                row.prompt_ids == ids_of(tokenizer, record["prompt"], add_generation_prompt=True)[: len(row.prompt_ids)]
            )
        assert all(all(mask) for mask in row.masks)
    assert checked > 240


@pytest.mark.parametrize("name", REAL)
def test_every_row_of_real_text_is_kept_byte_for_byte(name: str) -> None:
    tokenizer = real(name)
    records = [
        {
            "prompt": r["prompt"][0]["content"] + "\n",
            "chosen": r["chosen"][0]["content"],
            "rejected": r["rejected"][0]["content"],
        }
        for r in real_pairs(200)
    ]
    for record, (row,) in zip(records, Encoder(tokenizer, OPTIONS).encode(records), strict=True):
        assert isinstance(row, EncodedRow)
        for side, ids in zip(("chosen", "rejected"), row.responses, strict=True):
            whole = [i for i in row.prompt_ids if i != tokenizer.bos_token_id] + ids[:-1]
            assert tokenizer.decode(whole, clean_up_tokenization_spaces=False) == record["prompt"] + record[side]


PAIR = {"prompt": [user("hello")], "chosen": [said("the sky is blue.")], "rejected": [said("the car is red")]}
HISTORY = PAIR | {"prompt": [user("hello"), said(THOUGHT + "fine"), user("go on")]}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("record", [PAIR, HISTORY], ids=["one turn", "history with thinking"])
def test_answers_are_the_end_of_the_rendered_conversation(name: str, record: dict[str, Any]) -> None:
    row = encode_row(record, templated(name), OPTIONS)
    assert isinstance(row, EncodedRow), row
    check_row(templated(name), record, row)


@pytest.mark.parametrize("name", ENDS)
def test_thinking_is_kept(name: str) -> None:
    tokenizer = templated(name)
    record = PAIR | {"chosen": [said(THOUGHT + "blue.")], "rejected": [said(THOUGHT.replace("how", "who") + "blue.")]}
    row = encode_row(record, tokenizer, OPTIONS)
    assert isinstance(row, EncodedRow), row
    for ids, thought in zip(row.responses, ("hello, how", "hello, who"), strict=True):
        whole = tokenizer.decode(row.prompt_ids + ids)
        assert whole.count("</think>") == whole.count("<think>") == 1
        assert whole.index("<think>") < whole.index(thought) < whole.index("</think>") < whole.index("blue.")
        assert thought in tokenizer.decode(ids)


@pytest.mark.parametrize("name", ENDS)
def test_a_step_pair_is_one_open_assistant_turn(name: str) -> None:
    tokenizer = templated(name)
    record = {
        "prompt": [user("Solve 2+3*4.")],
        "initial_reason_steps": "Step 1: 3*4=12. ",
        "chosen": [said("Step 2: 2+12=14.")],
        "rejected": "Step 2: 3*4=12.",
    }
    row = encode_row(record, tokenizer, OPTIONS)
    assert isinstance(row, EncodedRow), row
    for ids, step in zip(row.responses, ("Step 2: 2+12=14.", "Step 2: 3*4=12."), strict=True):
        whole = tokenizer.decode(row.prompt_ids + ids)
        assert whole.endswith("Step 1: 3*4=12. " + step)
        assert tokenizer.decode(ids).strip() == step  # the mask covers the step only
        assert ids[-1] not in _special(tokenizer)
        one_turn = ids_of(tokenizer, [*record["prompt"], said("Step 1: 3*4=12. " + step)])
        assert one_turn[: len(row.prompt_ids + ids)] == row.prompt_ids + ids
    closed = encode_row(record | {"complete": True}, tokenizer, OPTIONS)
    assert isinstance(closed, EncodedRow), closed
    assert closed.prompt_ids == row.prompt_ids
    for ids, end in zip(closed.responses, row.responses, strict=True):
        assert ids[: len(end)] == end
        assert ids[-1] in _special(tokenizer)
    assert (
        encode_prompt({k: record[k] for k in ("prompt", "initial_reason_steps")}, tokenizer, OPTIONS)[:-1]
        == row.prompt_ids
    )


MULTI = {
    "prompt": [user("hello")],
    "chosen": [said("the sky"), user("go on"), said("is blue.")],
    "rejected": [said("the car"), user("go"), said("is red")],
}


@pytest.mark.parametrize("name", ENDS)
def test_only_what_the_assistant_writes_is_scored(name: str) -> None:
    tokenizer = templated(name)
    every, last = (encode_row(MULTI, tokenizer, options) for options in (ALL_TURNS, OPTIONS))
    assert isinstance(every, EncodedRow), every
    assert isinstance(last, EncodedRow), last
    assert last.notes[-1] == "turns_not_scored"
    for r, (first, question, second) in enumerate((("the sky", "go on", "is blue."), ("the car", "go", "is red"))):
        scored = tokenizer.decode([i for i, m in zip(every.responses[r], every.masks[r], strict=True) if m])
        assert first in scored
        assert second in scored
        assert question not in scored
        scored = tokenizer.decode([i for i, m in zip(last.responses[r], last.masks[r], strict=True) if m])
        assert first not in scored
        assert second in scored
        assert every.responses[r] == last.responses[r]
        assert every.masks[r][-1]


def _marked(row: EncodedRow, r: int) -> list[tuple[int, bool]]:
    return list(zip(row.responses[r], row.masks[r], strict=True))


@pytest.mark.parametrize("name", ENDS)
def test_each_scored_turn_ends_with_the_token_that_closes_it(name: str) -> None:
    tokenizer = templated(name)
    row = encode_row(MULTI, tokenizer, ALL_TURNS)
    assert isinstance(row, EncodedRow), row
    for ids, mask in zip(row.responses, row.masks, strict=True):
        lasts = [i for i in range(len(ids)) if mask[i] and (i + 1 == len(ids) or not mask[i + 1])]
        assert len(lasts) == 2
        assert all(ids[i] in _special(tokenizer) for i in lasts)


def test_responses_that_begin_with_different_roles_share_no_more_than_the_prompt() -> None:
    record = {
        "prompt": [user("hello"), said("fine")],
        "chosen": [user("A?"), said("the sky")],
        "rejected": [{"role": "tool", "content": "B"}, said("is blue.")],
    }
    row = encode_row(record, plain(), OPTIONS)
    assert isinstance(row, EncodedRow)
    assert plain().decode(row.prompt_ids) == "<|user|>hello\n<|assistant|>fine<|end|>\n"
    assert [plain().decode([i for i, m in _marked(row, r) if m]) for r in (0, 1)] == [
        "the sky<|end|>",
        "is blue.<|end|>",
    ]


def test_a_header_of_the_assistant_is_no_part_of_its_turn() -> None:
    record = {"prompt": [user("hello")], "chosen": [said("the sky")], "rejected": [user("B"), said("is blue.")]}
    row = encode_row(record, plain(), ALL_TURNS)
    assert isinstance(row, EncodedRow)
    longer = [*record["chosen"], user("go on"), said("blue.")]
    other = encode_row(record | {"chosen": longer}, plain(), ALL_TURNS)
    assert isinstance(other, EncodedRow)
    assert plain().decode(other.prompt_ids) == "<|user|>hello\n"
    assert [plain().decode([i for i, m in _marked(other, r) if m]) for r in (0, 1)] == [
        "the sky<|end|>blue.<|end|>",
        "is blue.<|end|>",
    ]


def test_the_end_token_in_earlier_turns_is_no_end() -> None:
    record = MULTI | {"prompt": [user("a"), said("b"), user("hello")]}
    row = encode_row(record, plain(), ALL_TURNS)
    assert isinstance(row, EncodedRow)
    assert plain().eos_token_id in row.prompt_ids
    assert plain().pad_token_id == plain().eos_token_id
    assert [ids.count(plain().eos_token_id) for ids in row.responses] == [2, 2]
    assert all(mask[ids.index(plain().eos_token_id)] for ids, mask in zip(row.responses, row.masks, strict=True))


def test_an_answer_that_brings_its_own_end_token_has_one() -> None:
    row = encode_row(PAIR | {"chosen": [said("the sky is blue.<|end|>")]}, plain(), OPTIONS)
    assert isinstance(row, EncodedRow)
    assert plain().decode(row.responses[0]) == "the sky is blue.<|end|>"


def changing(prompt_depends_on: str) -> str:
    """A template that renders the prompt differently for some answers."""
    return (
        "{% for m in messages %}{% if m.role == 'user' and '"
        + prompt_depends_on
        + "' in messages[-1].content %}OTHER{% endif %}"
        "<|{{ m.role }}|>{{ m.content }}{% if m.role == 'assistant' %}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )


DROPS = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.role != 'assistant' %}{{ m.content }}{% endif %}<|end|>{% endfor %}"
)
NO_REASONING = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"


@pytest.mark.parametrize(
    ("template", "record", "detail"),
    [
        (changing("red"), PAIR, "renders the prompt differently"),
        (changing("sky"), PAIR, "renders the prompt differently"),
        (DROPS, PAIR | {"complete": False}, "leaves out the text of a message"),
        (NO_REASONING, PAIR | {"chosen": [said("x", reasoning_content="hm")]}, "leaves out 'reasoning_content'"),
        (
            NO_REASONING,
            PAIR | {"chosen": [said("", tool_calls=[{"function": {"name": "look"}}])]},
            "leaves out 'tool_calls'",
        ),
    ],
)
def test_a_conversation_that_cannot_be_rebuilt_is_refused(template: str, record: dict[str, Any], detail: str) -> None:
    row = encode_row(record, plain(), DataOptions(chat_template=template))
    assert isinstance(row, Rejection), row
    assert row.reason == "boundary_mismatch"
    assert detail in row.detail


def test_a_template_that_shows_nothing_of_the_answers_leaves_them_equal() -> None:
    row = encode_row(PAIR, plain(), DataOptions(chat_template=DROPS))
    assert isinstance(row, Rejection)
    assert row.reason in ("identical", "boundary_mismatch")


def test_what_a_template_refuses_is_a_bad_message_in_its_own_words() -> None:
    row = encode_row(
        PAIR | {"prompt": [{"role": "system", "content": "x"}, user("hello")]}, templated("gemma"), OPTIONS
    )
    assert row == Rejection("bad_message", "the chat template refuses the messages: System role not supported")


def test_a_template_without_an_end_token_gets_one() -> None:
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    template += "{% if add_generation_prompt %}assistant:{% endif %}"
    row = encode_row(PAIR, plain(), DataOptions(chat_template=template))
    assert isinstance(row, EncodedRow)
    assert plain().decode(row.responses[0]) == " the sky is blue.\n<|end|>"


def test_steps_inside_a_rendered_answer(tmp_path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text(plain().chat_template, encoding="utf-8")
    record = PAIR | {"chosen_steps": [[0, 7], [7, 16]], "rejected_steps": [[0, 14]]}
    row = encode_row(record, plain(), DataOptions(chat_template=str(file)))
    assert isinstance(row, EncodedRow)
    assert row.steps is not None
    first = plain().decode([i for i, s in zip(row.responses[0], row.steps[0], strict=True) if s == 0])
    assert first == "the sky"
    assert [steps[-1] for steps in row.steps] == [-1, -1]


@pytest.mark.parametrize("thinking", [True, False])
def test_qwen_with_and_without_thinking(thinking: bool) -> None:
    tokenizer = real("qwen3")
    record = PAIR | {"chat_template_kwargs": {"enable_thinking": thinking}}
    row = encode_row(record, tokenizer, OPTIONS)
    assert isinstance(row, EncodedRow)
    assert ("<think>" in tokenizer.decode(row.prompt_ids)) is not thinking
    prompt = encode_prompt({k: record[k] for k in ("prompt", "chat_template_kwargs")}, tokenizer, OPTIONS)
    assert prompt == row.prompt_ids


TOOL = {
    "prompt": [user("hello")],
    "chosen": [
        said("", tool_calls=[{"type": "function", "function": {"name": "look", "arguments": {"x": 1}}}]),
        {"role": "tool", "name": "look", "content": "red"},
        said("the sky"),
    ],
    "rejected": [said("I am fine")],
}


@pytest.mark.parametrize(
    "name", ["gptoss", "glm4moe", "lfm2_2_5", "llama3_1", "nemotron_3_nano", "qwen2_5", "qwen3", "qwen3_6"]
)
def test_tool_calls_are_scored_and_their_results_are_not(name: str) -> None:
    tokenizer = templated(name)
    row = encode_row(TOOL, tokenizer, ALL_TURNS)
    assert isinstance(row, EncodedRow), row
    scored = tokenizer.decode([i for i, m in _marked(row, 0) if m])
    assert "look" in scored
    assert "the sky" in scored
    assert "red" not in scored


@pytest.mark.parametrize("name", ["llama3", "phi3", "lfm2", "deepseek_r1_distill"])
def test_a_template_without_tools_is_not_trained_on_calls(name: str) -> None:
    row = encode_row(TOOL, templated(name), ALL_TURNS)
    assert row == Rejection("boundary_mismatch", "the chat template leaves out 'tool_calls' of the answer")


def test_rows_encode_alike_alone_and_in_a_batch() -> None:
    make: Callable[[], PreTrainedTokenizerBase] = plain
    records = [
        PAIR,
        HISTORY,
        MULTI,
        {"prompt": "a", "chosen": " b", "rejected": None},
        {"prompt": "a", "chosen": " b", "rejected": " c"},
    ]
    together = [found[0] for found in Encoder(make(), OPTIONS).encode(records)]
    assert together == [encode_row(record, make(), OPTIONS) for record in records]
