"""A cache of reference log-probabilities says what the live reference says, or refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from prefopt.data.collate import Collator
from prefopt.errors import ConfigError, RunError
from prefopt.scoring.cache import Cache, CachedReference, fill, prepare
from prefopt.scoring.policy import Scorer
from prefopt.scoring.reference import ModelReference, freeze
from tests.train.tiny import tiny_model, tiny_rows

IDENTITY = {"weights": "abc", "dtype": "float32", "backend": "chunked"}
LIVE = ModelReference(freeze(tiny_model()), Scorer())
ROWS = tiny_rows(12, responses=3)


def batches(size: int = 4, rows: list[dict[str, Any]] = ROWS) -> Iterator[dict[str, torch.Tensor]]:
    for start in range(0, len(rows), size):
        yield Collator()(rows[start : start + size])


def filled(folder: Path) -> Path:
    assert fill(prepare(folder, IDENTITY), batches(), LIVE) == 36
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("size", [1, 5, 12])
def test_any_batch_is_given_the_live_values(tmp_path: Path, size: int) -> None:
    cached = CachedReference(Cache.open(filled(tmp_path / "c"), IDENTITY))
    for batch in batches(size, ROWS[::-1]):
        found, live = cached(batch).logps, LIVE(batch).logps.masked_fill(~batch["mask"], 0)
        torch.testing.assert_close(found, live, rtol=1e-5, atol=1e-5)


def test_a_subset_of_the_responses_is_found_and_a_changed_mask_or_prompt_is_not(tmp_path: Path) -> None:
    cached = CachedReference(Cache.open(filled(tmp_path / "c")))
    row = ROWS[2]
    one = Collator()([{**row, "responses": row["responses"][2:], "masks": row["masks"][2:]}])
    torch.testing.assert_close(cached(one).logps, LIVE(one).logps, rtol=1e-5, atol=1e-5)
    for change in (
        {"prompt_ids": [*row["prompt_ids"], 9]},
        {"prompt_ids": row["prompt_ids"][:-1], "responses": [[row["prompt_ids"][-1], *r] for r in row["responses"]],
         "masks": [[True, *m] for m in row["masks"]]},
        {"masks": [[False, *m[1:]] for m in row["masks"]]},
    ):  # fmt: skip
        with pytest.raises(RunError, match=r"of \d responses of a batch are not in the reference cache .*`prefopt ref"):
            cached(Collator()([{**row, **change}]))


def test_a_missing_response_has_no_values_and_needs_none(tmp_path: Path) -> None:
    cached = CachedReference(Cache.open(filled(tmp_path / "c")))
    short = {**ROWS[0], "responses": ROWS[0]["responses"][:1], "masks": ROWS[0]["masks"][:1]}
    batch = Collator()([short, ROWS[1]])
    assert cached(batch).logps[0, 1:].eq(0).all()


def test_an_interrupted_fill_keeps_its_parts_and_the_next_computes_only_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prefopt.scoring.cache._PART_VALUES", 1)  # every batch is a part

    def killed() -> Iterator[dict[str, torch.Tensor]]:
        yield from list(batches())[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(prepare(tmp_path / "c", IDENTITY), killed(), LIVE)
    before = contents(tmp_path / "c")
    assert len(before) == 3
    asked = []

    def counting(batch: Any) -> Any:
        asked.append(len(batch["mask"]))
        return LIVE(batch)

    assert fill(prepare(tmp_path / "c", IDENTITY), batches(), counting) == 12
    assert asked == [4]
    assert {name: contents(tmp_path / "c")[name] for name in before} == before
    assert len(Cache.open(tmp_path / "c")) == 36


def test_a_response_that_comes_again_is_kept_once(tmp_path: Path) -> None:
    assert fill(prepare(tmp_path / "c", IDENTITY), batches(6, [ROWS[0], *ROWS, ROWS[-1]]), LIVE) == 36
    assert len(Cache.open(tmp_path / "c")) == 36


def test_another_reference_is_refused_by_the_name_of_what_differs_and_left_alone(tmp_path: Path) -> None:
    before = contents(filled(tmp_path / "c"))
    other = {**IDENTITY, "weights": "def", "dtype": "bfloat16"}
    for call in (Cache.open, prepare):
        with pytest.raises(ConfigError, match=r"weights is abc there and def here; dtype is float32 there and bf"):
            call(tmp_path / "c", other)
    assert contents(tmp_path / "c") == before


def test_damage_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = filled(tmp_path / "c")
    part = next(folder.glob("part-*"))
    whole = part.read_bytes()
    flipped = bytearray(whole)
    flipped[-3] ^= 1
    for content, complaint in (
        (bytes(flipped), "is damaged: its checksum differs. Remove it"),
        (whole[:-7], "is damaged or no part of a reference cache"),
        (b"", "is damaged or no part of a reference cache"),
    ):
        part.write_bytes(content)
        with pytest.raises(ConfigError, match=complaint):
            Cache.open(folder)
        assert part.read_bytes() == content


def test_a_part_of_another_cache_is_refused(tmp_path: Path) -> None:
    folder = filled(tmp_path / "c")
    other = prepare(tmp_path / "other", {**IDENTITY, "weights": "def"})
    fill(other, batches(rows=tiny_rows(3, seed=5)), LIVE)
    part = next(other.folder.glob("part-*"))
    (folder / part.name).write_bytes(part.read_bytes())
    with pytest.raises(ConfigError, match="belongs to another reference than its folder's manifest"):
        Cache.open(folder)
    save_file({"weight": np.zeros(3, np.float32)}, folder / part.name)
    with pytest.raises(ConfigError, match="no part of a reference cache"):
        Cache.open(folder)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "reference": 3}', "\udc80"])
def test_a_foreign_manifest_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=r"is not the manifest of a reference cache .*; remove the folder, and"):
        prepare(tmp_path, IDENTITY)


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds something else than a reference cache; it was left alone"):
        prepare(tmp_path, IDENTITY)
    with pytest.raises(ConfigError, match=r"it has no manifest.json. It was left alone; remove the folder, and `pref"):
        Cache.open(tmp_path)
    with pytest.raises(ConfigError, match=r"it has no manifest.json. `prefopt reference RECIPE` makes one there"):
        Cache.open(tmp_path / "nothing")
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_files_are_readable_by_others_than_prefopt(tmp_path: Path) -> None:
    folder = filled(tmp_path / "c")
    assert json.loads((folder / "manifest.json").read_text())["reference"] == IDENTITY
    tensors = load_file(next(folder.glob("part-*")))
    assert {name: value.dtype for name, value in tensors.items()} == {
        "keys": np.uint64, "bounds": np.int64, "values": np.float32
    }  # fmt: skip
    assert tensors["bounds"][-1] == len(tensors["values"]) == sum(len(r) for row in ROWS for r in row["responses"])


def test_distributions_are_not_in_a_cache(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a cache holds log-probabilities of tokens, not distributions"):
        CachedReference(Cache.open(filled(tmp_path / "c")))(next(batches()), distributions=True)


def test_values_that_are_no_numbers_are_kept_and_counted_aloud(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(batch: Any) -> Any:
        stats = LIVE(batch)
        stats.logps[0, 1, 0] = torch.nan
        return stats

    folder = tmp_path / "c"
    fill(prepare(folder, IDENTITY), batches(12), broken)
    assert "the reference gives 1 responses a log-probability that is not finite" in caplog.text
    found = CachedReference(Cache.open(folder))(next(batches(12))).logps
    assert found[0, 1, 0].isnan()
    assert int(found.isnan().sum()) == 1
