"""The batch holds each row's ids and masks where they belong, whatever the padding token is."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prefopt.data import Collator

ID = st.integers(0, 5)
SIDE = st.lists(ID, min_size=1, max_size=6)


@st.composite
def rows(draw: st.DrawFn) -> list[dict]:
    def row() -> dict:
        responses = draw(st.lists(SIDE, min_size=1, max_size=3))
        masks = [[draw(st.booleans()) for _ in ids] for ids in responses]
        prompt = draw(st.lists(ID, max_size=5))
        return {"id": "x", "prompt_ids": prompt, "responses": responses, "masks": masks, "length": 0, "answer": None}

    return [row() for _ in range(draw(st.integers(1, 4)))]


@settings(max_examples=100, deadline=None)
@given(items=rows(), pad=ID)
def test_every_token_stands_in_its_place(items: list[dict], pad: int) -> None:
    batch = Collator(pad)(items)
    size, most = len(items), max(len(item["responses"]) for item in items)
    assert batch["input_ids"].shape[:2] == batch["mask"].shape[:2] == (size, most)
    assert batch["mask"].shape[2] == max(len(ids) for item in items for ids in item["responses"])
    for b, item in enumerate(items):
        start = len(item["prompt_ids"])
        assert batch["prompt_lengths"][b] == start
        for r in range(most):
            ids = item["responses"][r] if r < len(item["responses"]) else []
            mask = item["masks"][r] if r < len(item["responses"]) else []
            whole = item["prompt_ids"] + ids
            assert batch["input_ids"][b, r].tolist() == whole + [pad] * (batch["input_ids"].shape[2] - len(whole))
            assert batch["attention_mask"][b, r].sum() == max(len(whole), 1)
            assert batch["mask"][b, r].tolist() == mask + [False] * (batch["mask"].shape[2] - len(mask))
            scored = batch["input_ids"][b, r, start:][: len(ids)][batch["mask"][b, r, : len(ids)]]
            assert scored.tolist() == [i for i, m in zip(ids, mask, strict=True) if m]


ROW = {"prompt_ids": [1], "responses": [[2, 3], [4]], "masks": [[True, True], [True]]}


def test_dtypes_numbers_and_weights() -> None:
    batch = Collator()([{**ROW, "index": 7, "weight": 0.0}, ROW])
    kinds = {name: value.dtype for name, value in batch.items()}
    assert kinds == {
        "input_ids": torch.int64,
        "attention_mask": torch.int64,
        "prompt_lengths": torch.int64,
        "mask": torch.bool,
        "ids": torch.int64,
        "weight": torch.float32,
    }
    assert batch["ids"].tolist() == [7, 1]
    assert batch["weight"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("missing", [False, True])
def test_optional_columns_are_there_when_every_row_has_them(missing: bool) -> None:
    full = {**ROW, "steps": [[0, 1], [-1]], "external": [1.0, 0.5], "label": True}
    other = {**ROW, "steps": None, "external": None, "label": None} if missing else {**full, "label": False}
    batch = Collator()([full, other])
    if missing:
        assert not {"steps", "external", "desirable"} & batch.keys()
        return
    assert batch["steps"].tolist() == [[[0, 1], [-1, -1]]] * 2
    assert batch["external"].tolist() == [[1.0, 0.5]] * 2
    assert batch["desirable"].tolist() == [True, False]
    assert (batch["desirable"].dtype, batch["desirable"].shape) == (torch.bool, (2,))
    assert "labels" not in batch  # transformers.Trainer counts tokens in it
