"""Worked values of the method sheets, by case id; every case is reproduced here or in a file beside this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rapidfuzz.distance import Levenshtein

from data_tools.inject import KINDS, dropped_step, inject_at, relation_flip
from data_tools.steps import split_steps

CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[1] / "vectors" / "data.json").read_text(encoding="utf-8"))
}
INJECTED = [name for name in CASES if name.startswith("inject:")]
WORDS = ["inject:relation_flip", "inject:dropped_step"]
EQUATIONS = [name for name in INJECTED if name not in WORDS]


def test_every_case_is_reproduced_somewhere() -> None:
    assert set(CASES) == {*INJECTED, *_claimed_elsewhere()}


@pytest.mark.parametrize("name", EQUATIONS)
def test_errors_in_equations_have_the_worked_texts(name: str) -> None:
    case = CASES[name]
    params = dict(case["params"])
    kind = params.pop("kind", name.removeprefix("inject:").partition("/")[0])
    site, protected = params.pop("site"), params.pop("protected", ())
    expected = case["expected"]
    assert kind in KINDS
    for propagate in {"equation", "chain"} & set(expected) or {"equation", "chain"}:
        edited = inject_at(case["inputs"]["text"], kind, site, params, propagate=propagate, protected=protected)
        wanted = expected.get(propagate, expected.get("result"))
        assert (edited and edited.text) == wanted, propagate
        if edited is None or propagate == "chain":
            continue
        _check_spans(case["inputs"]["text"], edited.text, edited.spans_old, edited.spans_new)
        if "similarity_equation" in expected:
            text = case["inputs"]["text"]
            assert Levenshtein.distance(text, edited.text) == expected["levenshtein_equation"]
            similarity = Levenshtein.normalized_similarity(text, edited.text)
            assert similarity == pytest.approx(expected["similarity_equation"], abs=1e-12)


def test_a_relation_is_turned_round_as_worked() -> None:
    case = CASES["inject:relation_flip"]
    assert relation_flip(case["inputs"]["text"]) == case["expected"]["edited"]


def test_a_step_is_left_out_as_worked() -> None:
    case = CASES["inject:dropped_step"]
    assert dropped_step(split_steps(case["inputs"]["text"]), case["params"]["step"]) == case["expected"]["edited"]


def _check_spans(old: str, new: str, old_spans: Any, new_spans: Any) -> None:
    """Outside of the spans both texts are the same."""

    def rest(text: str, spans: Any) -> str:
        at, pieces = 0, []
        for start, end in spans:
            pieces.append(text[at:start])
            at = end
        return "|".join([*pieces, text[at:]])

    assert rest(old, old_spans) == rest(new, new_spans)


def _claimed_elsewhere() -> set[str]:
    """Cases that other test files of this folder name."""
    here = Path(__file__)
    texts = [file.read_text(encoding="utf-8") for file in here.parent.glob("test_*.py") if file != here]
    return {name for name in CASES if any(f'"{name}"' in text for text in texts)}
