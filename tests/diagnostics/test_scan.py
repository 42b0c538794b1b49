"""Scores over rows: equal to an unbatched computation, whatever the batches, the layout and who shares the work."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
import torch

from prefopt.diagnostics.items import Item, PairRecord, batches_of, items_of, parts_of
from prefopt.diagnostics.measures import Movements, Similarities, pair_facts
from prefopt.diagnostics.states import StateReader
from prefopt.scoring import Scorer
from tests.diagnostics.independent import logps_of, next_probabilities, scores_of
from tests.train.tiny import tiny_model, tiny_rows

NAMES = ("ches", "ln_ches", "cosine", "last_inner_product")


def rows(count: int = 12, responses: int = 2) -> list[dict[str, Any]]:
    """Rows of which some share a prompt, a chosen response, or the beginning of both responses."""
    found = tiny_rows(count, responses=responses)
    found[3] = {**found[3], "prompt_ids": found[0]["prompt_ids"]}
    found[4] = {**found[4], "prompt_ids": found[0]["prompt_ids"]}
    found[4]["responses"] = [found[0]["responses"][0], *found[4]["responses"][1:]]
    found[4]["masks"] = [[True] * len(ids) for ids in found[4]["responses"]]
    for number in (5, 6):
        start = [*found[7]["responses"][0][:-1], 9, 8, 7]
        found[number]["responses"] = [[*start, *ids] for ids in found[number]["responses"]]
        found[number]["masks"] = [[True] * len(ids) for ids in found[number]["responses"]]
    found[6]["masks"] = [[t != 1 for t in range(len(ids))] for ids in found[6]["responses"]]
    return found


def measured(table: list[dict[str, Any]], *, tokens: int = 64, layout: Any = "auto") -> dict[Any, PairRecord]:
    """Records by row and rejected response."""
    reader = StateReader(tiny_model().eval(), Scorer(layout=layout))
    found = {}
    for batch in batches_of(items_of(table, 0, tokens=tokens), tokens=tokens):
        for facts, record in zip(pair_facts(batch), Similarities(reader)(batch), strict=True):
            found[facts["row"], facts["rejected_index"]] = facts | record
    return found


def assert_close(found: PairRecord, expected: dict[str, float], rel: float = 1e-4) -> None:
    for name in NAMES:
        assert found[name] == pytest.approx(expected[name], rel=rel, abs=rel), name


@pytest.mark.parametrize("layout", ["separate", "shared_prefix"])
@pytest.mark.parametrize("responses", [2, 4])
def test_equals_one_pass_per_response(responses: int, layout: Literal["separate", "shared_prefix"]) -> None:
    table = rows(responses=responses)
    found = measured(table, layout=layout)
    assert len(found) == len(table) * (responses - 1)
    model = tiny_model().eval()
    for (row, index), record in found.items():
        assert_close(record, scores_of(model, table[row], index + 1))


@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_batches_do_not_matter(tokens: int) -> None:
    table = rows()
    expected, found = measured(table, tokens=64), measured(table, tokens=tokens)
    assert found.keys() == expected.keys()
    for key, record in found.items():
        assert_close(record, expected[key])


def test_a_row_alone_scores_as_among_others() -> None:
    table = rows()
    everyone = measured(table)
    for number, row in enumerate(table):
        assert_close(measured([row])[0, 0], everyone[number, 0])  # type: ignore[arg-type]


def test_a_response_is_read_once_per_prompt() -> None:
    table = rows()
    items = items_of(table, 0, tokens=10_000)
    (item,) = [item for item in items if item.prompt == table[0]["prompt_ids"]]
    assert [pair.row for pair in item.pairs] == [0, 3, 4]
    assert len(item.responses) == 5, "six responses, of which rows 0 and 4 share one"
    split = items_of(table, 0, tokens=30)
    assert len(split) > len(items), "a prompt with more responses than the budget is read again"
    assert all(item.cost <= 30 or len({pair.row for pair in item.pairs}) == 1 for item in split)


def test_what_responses_begin_with_is_read_once() -> None:
    table = rows()
    (item,) = items_of([table[5]], 5, tokens=100)
    shared = item.shared_beginning()
    assert shared >= 3
    row = item.row(shared=shared)
    assert row["prompt_ids"] == [*item.prompt, *item.responses[0][:shared]]
    assert all(len(ids) >= 1 for ids in row["responses"])


@pytest.mark.parametrize(
    ("masks", "shared"),
    [
        ([[True] * 4, [True] * 4], 2),
        ([[False, True, True, True], [True] * 4], 0),
        ([[True, True, False, False], [True] * 4], 1),
        ([[False] * 4, [True] * 4], 0),
    ],
)
def test_a_shared_beginning_ends_before_a_difference_of_ids_or_masks_and_any_last_scored_token(
    masks: list[list[bool]], shared: int
) -> None:
    item = Item([1])
    item.add(0, [[5, 6, 7, 8], [5, 6, 8, 8]], masks)
    assert item.shared_beginning() == shared


def test_a_response_that_is_the_beginning_of_another_keeps_its_last_token() -> None:
    item = Item([1])
    item.add(0, [[5, 6], [5, 6, 7]], [[True] * 2, [True] * 3])
    assert item.shared_beginning() == 1


def test_a_response_without_scored_tokens_has_no_score_and_is_flagged() -> None:
    table = rows()
    table[2]["masks"][1] = [False] * len(table[2]["masks"][1])
    found = measured(table)
    assert [found[2, 0][name] for name in NAMES] == [None] * 4
    assert found[2, 0]["flags"] == ["empty"]
    assert found[1, 0]["flags"] == []
    assert all(found[1, 0][name] is not None for name in NAMES)


def test_equal_responses_score_exactly_0_and_are_flagged() -> None:
    table = rows()
    table[2]["responses"][1], table[2]["masks"][1] = table[2]["responses"][0], table[2]["masks"][0]
    record = measured(table)[2, 0]
    assert (record["ches"], record["ln_ches"]) == (0.0, 0.0)
    assert record["flags"] == ["identical"]


def test_every_row_is_in_one_batch_of_similar_lengths_within_the_budget() -> None:
    table = rows(40)
    batches = batches_of(items_of(table, 100, tokens=50), tokens=50)
    pairs = sorted(pair.row for batch in batches for item in batch for pair in item.pairs)
    assert pairs == list(range(100, 140))
    for batch in batches:
        assert len(batch) == 1 or max(item.cost for item in batch) * len(batch) <= 50
    costs = [item.cost for batch in batches for item in batch]
    assert costs == sorted(costs)
    assert [batch for part in parts_of(batches) for batch in part] == batches


def test_movement_equals_one_pass_per_response_and_model() -> None:
    table = rows(responses=3)
    start, policy = tiny_model().eval(), tiny_model(seed=1).eval()
    measure = Movements(policy, start)
    batches = batches_of(items_of(table, 0, tokens=80), tokens=80)
    for batch in batches:
        for facts, record in zip(pair_facts(batch), measure(batch), strict=True):
            row, index = table[facts["row"]], facts["rejected_index"] + 1
            chosen, rejected = row["responses"][0], row["responses"][index]
            for name, ids, mask in (
                ("chosen", chosen, row["masks"][0]),
                ("rejected", rejected, row["masks"][index]),
            ):
                scored = torch.tensor(mask)
                now, then = (logps_of(model, row["prompt_ids"], ids)[scored] for model in (policy, start))
                assert record[f"{name}_now"] == pytest.approx(float(now.sum()), rel=1e-5)
                assert record[f"{name}_start"] == pytest.approx(float(then.sum()), rel=1e-5)
                delta = float((now - then).sum())
                assert record[f"{name}_delta"] == pytest.approx(delta, rel=1e-4, abs=1e-5)
                assert record[f"{name}_delta_per_token"] == pytest.approx(delta / len(now), rel=1e-4, abs=1e-5)
            up = [record[f"{name}_delta"] > 0 for name in ("chosen", "rejected")]
            assert record["quadrant"] == "_".join("up" if rose else "down" for rose in up)
            check_branch(record, row["prompt_ids"], chosen, rejected, policy, start)


def check_branch(
    record: PairRecord, prompt: list[int], chosen: list[int], rejected: list[int], policy: Any, start: Any
) -> None:
    at = next(t for t in range(len(chosen)) if chosen[t] != rejected[t])
    if at == 1 and "branch_position" not in record:
        return  # row 6 does not score its second token
    assert (record["branch_position"], record["branch_chosen"], record["branch_rejected"]) == (
        at,
        chosen[at],
        rejected[at],
    )
    now, then = (next_probabilities(model, [*prompt, *chosen[:at]]) for model in (policy, start))
    for when, p in (("now", now), ("start", then)):
        pair = float(p[chosen[at]]), float(p[rejected[at]])
        assert record[f"branch_chosen_{when}"] == pytest.approx(pair[0], rel=1e-4)
        assert record[f"branch_rejected_{when}"] == pytest.approx(pair[1], rel=1e-4)
        assert record[f"branch_other_{when}"] == pytest.approx(1 - sum(pair), rel=1e-4)
        assert record[f"branch_greedy_{when}"] == int(p.argmax())
    assert record["branch_gainer"] == int((now - then).argmax())
    assert record["branch_gain"] == pytest.approx(float((now - then).max()), rel=1e-3)


def test_nothing_moved_between_equal_models() -> None:
    measure = Movements(tiny_model().eval(), tiny_model().eval())
    batches = batches_of(items_of(rows(), 0, tokens=80), tokens=80)
    records = [record for batch in batches for record in measure(batch)]
    assert {record["chosen_delta"] for record in records} == {0.0}
    assert {record["quadrant"] for record in records} == {"flat"}
    assert all(math.isclose(record["branch_gain"], 0, abs_tol=1e-12) for record in records if "branch_gain" in record)


def test_reading_states_leaves_no_gradient_and_uses_no_head() -> None:
    model = tiny_model().eval()
    seen: list[int] = []
    model.lm_head.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0].shape[1]))
    reader = StateReader(model, Scorer(layout="separate"))
    (sums, *_) = reader(batches_of(items_of(rows(), 0, tokens=80), tokens=80)[0])
    assert not sums.sums.requires_grad
    assert sums.sums.dtype == torch.float32
    assert set(seen) <= {0}


def test_half_precision_weights_are_summed_in_float32() -> None:
    reader = StateReader(tiny_model(dtype=torch.bfloat16).eval(), Scorer(layout="separate"))
    (sums, *_) = reader(batches_of(items_of(rows(), 0, tokens=80), tokens=80)[0])
    assert sums.sums.dtype == torch.float32
