"""What a record says of its responses, followed to the batch."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prefopt import Scores, get_loss, loss_names
from prefopt.data import (
    Collator,
    DataOptions,
    EncodedRow,
    Encoder,
    Prepared,
    Rejection,
    Source,
    encode_row,
    marks,
    prepare_rows,
)
from prefopt.data.differences import difference_masks
from prefopt.data.options import column_needs
from prefopt.data.spans import span_labels
from prefopt.losses import _weights
from tests.losses.token_vectors import token_cases

from .tokenizers import plain, with_bos

PAIR = {"prompt": "Solve.\n", "chosen": "Step 1: 3*4=12.\nStep 2: 2+12=14.", "rejected": "Step 1: 3*4=12.\nStep 2: 15."}
STEPS = {"chosen_steps": [[0, 16], [16, 32]], "rejected_steps": [[0, 16], [16, 27]]}
REWARDS = {"chosen_step_rewards": [0.9, 0.8], "rejected_step_rewards": [0.7, 0.1]}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


def prepare(tmp_path: Path, *records: dict[str, Any], needs: tuple[str, ...] | None = None, **options: Any) -> Prepared:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return prepare_rows([Source(str(path))], plain(), DataOptions(needs=needs, **options))


def batch(prepared: Prepared) -> dict[str, torch.Tensor]:
    return Collator()([prepared.rows[i] for i in range(len(prepared.rows))])


def row(record: dict[str, Any], **options: Any) -> EncodedRow:
    found = encode_row(record, plain(), DataOptions(**options))
    assert isinstance(found, EncodedRow), found
    return found


def refused(record: dict[str, Any], **options: Any) -> Rejection:
    found = encode_row(record, plain(), DataOptions(**options))
    assert isinstance(found, Rejection), found
    return found


def pieces(found: EncodedRow, response: int, values: list[Any]) -> dict[Any, str]:
    """The text of the tokens that have each value, in order."""
    ids: dict[Any, list[int]] = {}
    for token, value in zip(found.responses[response], values, strict=True):
        ids.setdefault(value, []).append(token)
    return {value: plain().decode(tokens) for value, tokens in ids.items()}


# ------------------------------------------------------------------------------------------------ from record to loss


MARKED = {
    **PAIR,
    **STEPS,
    **REWARDS,
    "chosen_weights": [[8, 14, 2.5]],
    "diff_spans_chosen": [[24, 31]],
    "diff_spans_rejected": [[24, 26]],
    "chosen_deviation": 1.5,
    "rejected_deviation": 0.5,
    "score_chosen": 2,
    "score_rejected": -1,
}


def with_token_scores(record: dict[str, Any]) -> dict[str, Any]:
    ids = row(record).responses
    scores = [{"ids": side, "scores": [round(0.1 + 0.01 * t, 2) for t in range(len(side))]} for side in ids]
    return {**record, "chosen_token_scores": scores[0], "rejected_token_scores": scores[1]}


def test_every_column_reaches_the_batch_with_its_shape(tmp_path: Path) -> None:
    found = batch(prepare(tmp_path, with_token_scores(MARKED), with_token_scores({**MARKED, "prompt": "Now.\n"})))
    size, responses, tokens = found["mask"].shape
    kinds = {name: (value.dtype, tuple(value.shape)) for name, value in found.items()}
    per_token = (size, responses, tokens)
    assert kinds["steps"] == (torch.int64, per_token)
    assert kinds["weights"] == kinds["token_scores"] == (torch.float32, per_token)
    assert kinds["diff"] == (torch.bool, per_token)
    assert kinds["step_rewards"] == (torch.float32, (2, 2, 2))
    assert kinds["external"] == kinds["deviation"] == (torch.float32, (2, 2))
    torch.testing.assert_close(found["step_rewards"][0], torch.tensor([[0.9, 0.8], [0.7, 0.1]]))
    assert found["deviation"][1].tolist() == [1.5, 0.5]
    assert found["external"][1].tolist() == [2, -1]


OURS = [
    name
    for name in loss_names()
    if get_loss(name).responses != "single"
    and column_needs(get_loss(name).needs)
    and "mismatched" not in get_loss(name).needs
]


@pytest.mark.parametrize("name", OURS)
def test_a_loss_reads_what_the_records_say(tmp_path: Path, name: str) -> None:
    loss = get_loss(name)
    prepared = prepare(tmp_path, with_token_scores(MARKED), needs=column_needs(loss.needs), responses=loss.responses)
    found = batch(prepared)
    columns = {need: found[need] for need in column_needs(loss.needs)}
    unasked = found.keys() - columns.keys() - {"external"}
    assert unasked == {"input_ids", "attention_mask", "prompt_lengths", "mask", "ids", "weight"}
    generator = torch.Generator().manual_seed(0)
    policy, reference = (-torch.rand(found["mask"].shape, generator=generator) for _ in range(2))
    kl = {"kl": -policy} if "kl" in loss.needs else {}
    out = loss(Scores(policy=policy, reference=reference, mask=found["mask"], **columns, **kl))
    assert torch.isfinite(out.losses).all()


def test_rows_without_what_the_loss_reads_are_counted(tmp_path: Path) -> None:
    records = [{**MARKED, "id": "a"}, {**PAIR, "id": "b"}, {**PAIR, **STEPS, "id": "c"}]
    prepared = prepare(tmp_path, *records, needs=("step_rewards", "steps"), max_lost=0.9)
    assert prepared.audit.lost == {"null_field": ["b", "c"]}
    assert prepared.audit.details["null_field"] == (
        "the loss reads step rewards, and the row has none (columns chosen_step_rewards and rejected_step_rewards, or "
        "first_error_step, or responses_step_rewards)"
    )
    assert "steps" in batch(prepared)


@pytest.mark.parametrize("need", ["steps", "step_rewards", "weights", "token_scores", "external", "deviation"])
def test_a_pair_alone_meets_no_need_but_that_of_a_difference(need: str) -> None:
    assert refused(PAIR, needs=(need,)).reason == "null_field"
    assert row(PAIR, needs=("diff",)).notes == ("diff_found",)


def test_columns_that_the_loss_does_not_read_cannot_cost_a_row() -> None:
    broken = {
        **PAIR,
        "chosen_steps": "x",
        "rejected_step_rewards": [1],
        "chosen_token_scores": {"ids": [], "scores": []},
    }
    assert row(broken, needs=()).tokens == {}
    assert refused(broken).reason == "bad_message"


# --------------------------------------------------------------------------------------------------------- step labels


def test_a_token_lies_in_the_step_of_its_first_character() -> None:
    found = row({**PAIR, **STEPS})
    assert found.steps is not None
    for side, name in enumerate(("chosen", "rejected")):
        texts = pieces(found, side, found.steps[side])
        assert [texts[0], texts[1]] == [PAIR[name][:16], PAIR[name][16:]]
        assert texts[-1] == "<|end|>"


def test_a_space_before_a_span_belongs_to_it_when_no_other_span_has_it() -> None:
    assert span_labels([(0, 3), (3, 7), (7, 9)], [(0, 3), (4, 7)]) == [0, 1, -1]
    assert span_labels([(0, 3), (3, 7), (7, 9)], [(0, 4), (4, 7)]) == [0, 0, -1]


@given(edges=st.lists(st.integers(0, 30), min_size=2, max_size=8), cuts=st.sets(st.integers(1, 29)))
def test_labels_are_those_of_a_search_through_all_characters(edges: list[int], cuts: set[int]) -> None:
    ordered = sorted(edges)
    spans = list(zip(ordered[::2], ordered[1::2], strict=False))
    borders = [0, *sorted(cuts), 30]
    tokens = list(pairwise(borders))

    def slow(start: int, end: int) -> int:
        inside = [n for place in range(start, end) for n, (a, b) in enumerate(spans) if a <= place < b]
        return inside[0] if inside else -1

    assert span_labels(tokens, spans) == [slow(*token) for token in tokens]


def test_a_bos_that_moves_to_the_front_moves_the_spans() -> None:
    tokenizer = with_bos()
    marked = {**PAIR, **STEPS, "chosen_weights": [[8, 14, 2.0]]}
    plainly = encode_row(marked, tokenizer, DataOptions())
    bos = tokenizer.bos_token
    shift = len(bos)
    moved = {
        **marked,
        "chosen": bos + PAIR["chosen"],
        "chosen_steps": [[0, 16 + shift], [16 + shift, 32 + shift]],
        "chosen_weights": [[8 + shift, 14 + shift, 2.0]],
    }
    found = encode_row(moved, tokenizer, DataOptions())
    assert isinstance(found, EncodedRow)
    assert isinstance(plainly, EncodedRow)
    assert found.tokens == plainly.tokens


def test_spans_follow_the_answer_through_a_chat_template() -> None:
    record = {**PAIR, **STEPS, "prompt": [{"role": "user", "content": "Solve."}]}
    found = encode_row(record, plain(), DataOptions())
    assert isinstance(found, EncodedRow)
    assert found.steps is not None
    assert pieces(found, 0, found.steps[0])[1] == PAIR["chosen"][16:]


# -------------------------------------------------------------------------------------------------------- step rewards


def test_step_rewards_must_match_the_steps_in_number(tmp_path: Path) -> None:
    bad = {**PAIR, **STEPS, **REWARDS, "rejected_step_rewards": [0.1], "id": "short"}
    bare = {**PAIR, **REWARDS, "id": "bare"}
    prepared = prepare(tmp_path, {**PAIR, **STEPS, **REWARDS}, bad, bare, max_lost=0.9)
    assert prepared.audit.lost == {"step_mismatch": ["short", "bare"]}
    assert prepared.audit.details["step_mismatch"] == "'rejected' has 1 step rewards, and it has 2 steps"
    assert refused(bare).detail == "'chosen' has 2 step rewards, and no steps are given"


def test_the_first_wrong_step_stands_for_rewards() -> None:
    found = row({**PAIR, **STEPS, "first_error_step": 2})
    assert found.values["step_rewards"] == [[1.0, 1.0], [1.0, 0.0]]
    assert row({**PAIR, **STEPS, "first_error_step": "1"}).values["step_rewards"][1] == [0.0, 0.0]


def test_data_and_losses_call_the_same_steps_wrong() -> None:
    assert marks.WRONG_BELOW == _weights.WRONG_BELOW


def test_given_rewards_stay_beside_a_first_wrong_step_that_agrees() -> None:
    assert row({**PAIR, **STEPS, **REWARDS, "first_error_step": 2}).values["step_rewards"] == [[0.9, 0.8], [0.7, 0.1]]


@pytest.mark.parametrize(
    ("step", "detail"),
    [
        (0, "column 'first_error_step' is 0, and the rejected response has 2 steps; it counts from 1"),
        (3, "column 'first_error_step' is 3, and the rejected response has 2 steps; it counts from 1"),
        (1, "column 'first_error_step' is 1, and the first step with a reward below 0.5 is 2"),
    ],
)
def test_a_first_wrong_step_that_cannot_be_is_refused(step: int, detail: str) -> None:
    assert refused({**PAIR, **STEPS, **REWARDS, "first_error_step": step}) == Rejection("step_mismatch", detail)


def test_a_first_wrong_step_is_a_whole_number() -> None:
    assert refused({**PAIR, **STEPS, "first_error_step": 1.5}).reason == "bad_message"


# ----------------------------------------------------------------------------------------------------- values of tokens


def test_token_scores_keep_their_places() -> None:
    found = row(with_token_scores(PAIR))
    assert [len(side) for side in found.tokens["token_scores"]] == [len(ids) for ids in found.responses]
    assert found.tokens["token_scores"][0][:3] == [0.1, 0.11, 0.12]


def test_an_end_token_may_have_a_score_or_none() -> None:
    ids = row(PAIR).responses
    scores = [[0.5] * (len(side) - 1) for side in ids]
    without = {
        **PAIR,
        "chosen_token_scores": scores[0],
        "rejected_token_scores": {"ids": ids[1][:-1], "scores": scores[1]},
    }
    for side in row(without).tokens["token_scores"]:
        assert side[:-1] == [0.5] * (len(side) - 1)
        assert math.isnan(side[-1])


def test_scores_of_one_side_leave_the_other_without() -> None:
    scored = with_token_scores(PAIR)
    del scored["chosen_token_scores"]
    chosen, rejected = row(scored, needs=("token_scores",)).tokens["token_scores"]
    assert all(map(math.isnan, chosen))
    assert not any(map(math.isnan, rejected))


def test_scores_that_belong_to_other_tokens_are_refused(tmp_path: Path) -> None:
    scored = with_token_scores(PAIR)
    ids = list(scored["rejected_token_scores"]["ids"])
    wrong = ids[2] + 1
    other = {**scored, "rejected_token_scores": {**scored["rejected_token_scores"], "ids": [*ids[:2], wrong, *ids[3:]]}}
    prepared = prepare(tmp_path, scored, {**other, "id": "other"}, max_lost=0.9)
    assert prepared.audit.lost == {"token_mismatch": ["other"]}
    assert prepared.audit.details["token_mismatch"] == (
        f"column 'rejected_token_scores' belongs to other tokens: id {wrong} at place 2, here {ids[2]}"
    )
    short = {**PAIR, "rejected_token_scores": [0.5, 0.5]}
    assert refused(short) == Rejection(
        "token_mismatch", f"column 'rejected_token_scores' has 2 values, and the response has {len(ids)} tokens"
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([1.5], "bad_message"),
        ([math.nan], "nonfinite"),
        ("x", "bad_message"),
        ({"ids": [1], "score": [1]}, "bad_message"),
        ({"ids": [1, 2], "scores": [1]}, "token_mismatch"),
        ({"ids": ["x"], "scores": [1]}, "bad_message"),
    ],
)
def test_token_scores_of_another_form_are_refused(value: Any, reason: str) -> None:
    assert refused({**PAIR, "rejected_token_scores": value}).reason == reason


def test_weights_come_by_span_or_by_token() -> None:
    found = row({**PAIR, "chosen_weights": [[8, 14, 2.5]]})
    weighted = pieces(found, 0, found.tokens["weights"][0])
    assert weighted == {1.0: "Step 1:.\nStep 2: 2+12=14.<|end|>", 2.5: " 3*4=12"}
    assert found.tokens["weights"][1] == [1.0] * len(found.responses[1])
    ids = found.responses[0]
    each = [float(t) for t in range(len(ids))]
    for given_as in (each, {"ids": ids, "weights": each}):
        assert row({**PAIR, "chosen_weights": given_as}).tokens["weights"][0] == each


@pytest.mark.parametrize(
    "value", [[[0, 3, -1]], [[0, 3]], [[3, 0, 1]], [[0, 3, "x"]], [[0, 99, 1]], [-1.0], {"ids": [1]}]
)
def test_weights_that_cannot_be_are_refused(value: Any) -> None:
    assert refused({**PAIR, "chosen_weights": value}).reason == "bad_message"


# --------------------------------------------------------------------------------------------------------- differences


def test_difference_spans_mark_the_tokens_that_they_touch() -> None:
    found = row({**PAIR, "diff_spans_chosen": [[24, 31]], "diff_spans_rejected": [[24, 26]]})
    assert pieces(found, 0, found.tokens["diff"][0])[True].strip() == "2+12=14"
    assert pieces(found, 1, found.tokens["diff"][1])[True].strip() == "15"


@pytest.mark.parametrize("case", token_cases("bmc_diff_masks"), ids=lambda case: case["id"])
def test_worked_difference_masks(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected_extra"]
    for skip, suffix in (((), ""), (inputs["skip_ids"], "_skipping")):
        found = difference_masks(inputs["chosen_ids"], inputs["rejected_ids"], skip=skip)
        for side, mask in zip(("chosen", "rejected"), found, strict=True):
            assert mask == [bool(x) for x in expected[f"{side}_diff{suffix}"]]


def test_frequent_tokens_of_long_responses_are_aligned_too() -> None:
    long = [7 if n % 2 else 1000 + n for n in range(300)]
    found = difference_masks(long, [*long[:100], 9, *long[101:]])
    assert [[n for n, differs in enumerate(side) if differs] for side in found] == [[100], [100]]


def test_a_pair_without_spans_is_compared_by_ids_when_the_loss_asks(tmp_path: Path) -> None:
    prepared = prepare(
        tmp_path, PAIR, {**PAIR, "diff_spans_chosen": [[0, 4]], "diff_spans_rejected": []}, needs=("diff",)
    )
    assert prepared.audit.notes == {"diff_found": 1}
    one, other = prepared.rows["diff"][:]
    assert one == [list(mask) for mask in difference_masks(*prepared.rows[0]["responses"])]
    assert (sum(other[0]) > 0, any(other[1])) == (True, False)
    assert "diff" not in row(PAIR).tokens


# ----------------------------------------------------------------------------------------- deviations, several, groups


def test_the_deviation_of_the_rejected_response_may_be_unknown() -> None:
    chosen, rejected = row({**PAIR, "chosen_deviation": 0.4}, needs=("deviation",)).values["deviation"]
    assert chosen == 0.4
    assert math.isnan(rejected)
    assert refused({**PAIR, "rejected_deviation": 0.4}, needs=("deviation",)).reason == "null_field"
    assert (
        refused({**PAIR, "chosen_deviation": -0.1}).detail == "column 'chosen_deviation' must be at least 0; got -0.1"
    )


SEVERAL = {
    "prompt": "the sky is",
    "chosen": " blue",
    "rejected": [" red", None, " blue", " green", " red"],
    "chosen_deviation": 1.0,
    "rejected_deviation": [2.0, 3.0, 4.0, 5.0, 6.0],
    "rejected_weights": [[[0, 4, 2.0]], None, None, [[0, 6, 5.0]], None],
}


def test_columns_of_several_rejected_responses_go_with_them() -> None:
    found = row(SEVERAL, responses="many")
    assert found.values["deviation"] == [1.0, 2.0, 5.0]
    assert [side[0] for side in found.tokens["weights"]] == [1.0, 2.0, 5.0]
    wrong = refused({**SEVERAL, "rejected_deviation": [1.0]}, responses="many")
    assert wrong == Rejection(
        "bad_message", "column 'rejected_deviation' must be a list with an entry for each of the 5 in 'rejected'"
    )


def test_pairs_made_of_several_rejected_responses_keep_their_columns(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, SEVERAL, negatives="expand")
    assert prepared.rows["deviation"][:] == [[1.0, 2.0], [1.0, 5.0]]
    assert [side[1][0] for side in prepared.rows["weights"][:]] == [2.0, 5.0]


def test_rejected_responses_that_become_equal_take_their_columns_with_them() -> None:
    record = {
        "prompt": "the sky is",
        "chosen": " blue",
        "rejected": [" red red red", " red red cat", " green"],
        "rejected_deviation": [1.0, 2.0, 3.0],
        "chosen_deviation": 0.0,
    }
    length = len(row({"prompt": "the sky is", "chosen": " blue", "rejected": " red"}).prompt_ids) + 2
    found = row(record, responses="many", truncate="response", max_length=length, eos="never")
    assert "negatives_dropped" in found.notes
    assert len(found.values["deviation"]) == len(found.responses) == 3


GROUP = {
    "prompt": "Solve.\n",
    "responses": ["1. 2.", "3. 4.", "5. 6. 7."],
    "rewards": [0.0, 1.0, 1.0],
    "responses_steps": [[[0, 3], [3, 5]], [[0, 3], [3, 5]], [[0, 3], [3, 6], [6, 8]]],
    "responses_step_rewards": [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6, 0.7]],
}


def test_step_rewards_of_a_group_are_ordered_with_its_responses(tmp_path: Path) -> None:
    needs = ("external", "step_rewards", "steps")
    found = batch(prepare(tmp_path, GROUP, responses="many", needs=needs))
    assert found["external"].tolist() == [[1, 1, 0]]
    rewards = [[0.3, 0.4, 0], [0.5, 0.6, 0.7], [0.1, 0.2, 0]]
    torch.testing.assert_close(found["step_rewards"], torch.tensor([rewards]))
    assert found["steps"].amax(-1).tolist() == [[1, 2, 1]]


def test_equally_good_responses_stay_for_a_loss_that_reads_rewards_only() -> None:
    assert len(row(GROUP, responses="many", needs=("external",)).responses) == 3
    for needs in (None, ()):
        assert len(row(GROUP, responses="many", needs=needs).responses) == 2


# ----------------------------------------------------------------------------------------------------------- truncation


def test_a_cut_takes_the_columns_of_the_tokens_with_it() -> None:
    marked = with_token_scores(MARKED)
    whole = row(marked)
    limit = len(whole.prompt_ids) + 18
    found = row(marked, truncate="response", max_length=limit, eos_on_cut=True)
    for name, filler in (("steps", -1), ("weights", 1.0), ("diff", False)):
        for side in (0, 1):
            assert found.tokens[name][side] == [*whole.tokens[name][side][:17], filler]
    for side in (0, 1):
        assert found.tokens["token_scores"][side][:17] == whole.tokens["token_scores"][side][:17]
        assert math.isnan(found.tokens["token_scores"][side][17])
    assert found.values == whole.values


def test_a_cut_prompt_leaves_the_columns_as_they_are() -> None:
    marked = with_token_scores(MARKED)
    long = {**marked, "prompt": "Solve.\n" * 20}
    whole = row(long)
    cut = row(long, truncate="prompt_start", max_length=whole.length - 5)
    assert cut.tokens["steps"] == whole.tokens["steps"]
    assert cut.tokens["weights"] == whole.tokens["weights"]


# ------------------------------------------------------------------------------------------- pairs for unpaired losses


LABELLED = {"responses": "single", "needs": ("labels",)}


def test_a_pair_becomes_a_desirable_and_an_undesirable_row(tmp_path: Path) -> None:
    records = [
        {**PAIR, "id": "pair"},
        {"prompt": "the sky", "completion": " is red", "label": False, "id": "one"},
        {"prompt": "the sky", "chosen": " is blue", "rejected": [" is red", " is green"], "id": "three"},
    ]
    prepared = prepare(tmp_path, *records, **LABELLED)
    assert prepared.rows["id"][:] == ["pair#1", "pair#2", "one", "three#1", "three#2", "three#3"]
    assert prepared.rows["label"][:] == [True, False, False, True, False, False]
    assert all(len(r) == 1 for r in prepared.rows["responses"][:])
    assert prepared.audit.notes == {"pair_split": 2}
    assert any("became a desirable row" in line for line in prepared.audit.lines())
    assert batch(prepared)["desirable"].tolist() == [True, False, False, True, False, False]
    pair = row(PAIR)
    assert prepared.rows["responses"][:2] == [[pair.responses[0]], [pair.responses[1]]]


def test_a_loss_without_labels_still_takes_the_chosen_response_only(tmp_path: Path) -> None:
    for needs in (None, ()):
        prepared = prepare(tmp_path, PAIR, responses="single", needs=needs)
        assert [len(prepared.rows), prepared.audit.notes] == [1, {}]


def test_a_completion_without_a_label_is_no_row_of_a_loss_that_reads_labels() -> None:
    assert refused({"prompt": "the sky", "completion": " is red"}, **LABELLED).reason == "null_field"
    assert refused({"prompt": "the sky", "chosen": " is red"}, **LABELLED).reason == "null_field"


def test_the_best_of_a_group_is_desirable_and_the_worse_ones_are_not(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, GROUP, **LABELLED)
    assert prepared.rows["label"][:] == [True, False]


def test_messages_are_split_the_same_way() -> None:
    record = {
        "prompt": [{"role": "user", "content": "hello"}],
        "chosen": [{"role": "assistant", "content": "the sky"}],
        "rejected": [{"role": "assistant", "content": "the cat"}],
    }
    (found,) = Encoder(plain(), DataOptions(**LABELLED)).encode([record])
    assert [r.label for r in found if isinstance(r, EncodedRow)] == [True, False]


def test_the_needs_that_data_meets_are_those_with_columns() -> None:
    assert column_needs({"reference", "tokens", "steps", "labels", "kl", "diff"}) == ("diff", "labels", "steps")
    assert DataOptions(needs=("steps",)).key() != DataOptions().key()
