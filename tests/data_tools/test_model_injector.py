from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from data_tools.inject import ErrorInjector, ModelInjector, RuleInjector, SolutionItem, build_pair, row_random
from data_tools.inject.model import INSTRUCTIONS, edit_kinds, parse_reply, passage_of
from tests.data_tools.independent import faults
from tests.data_tools.solutions import PENS, PROBLEMS

BODIES = {1: PENS[7:57], 2: PENS[65:112]}


@dataclass
class Scripted:
    """Answers every request for a passage by the edit that is written down for it."""

    edits: dict[str, str]
    prompts: list[str] = field(default_factory=list)

    def generate(self, prompts: Sequence[str]) -> Sequence[str]:
        self.prompts += prompts
        replies = []
        for prompt in prompts:
            passage = prompt.split("```\n")[1].strip("\n")
            new = passage
            for old, replacement in self.edits.items():
                new = new.replace(old, replacement)
            replies.append(new + "\n```\nThat is it.")
        return replies


def injected(generator: Scripted, **options: object) -> list[object]:
    injector = ModelInjector(generator, attempts=3, pairs=3, **options)  # type: ignore[arg-type]
    return list(injector.inject(PROBLEMS[0].item, row_random(0, "x", "inject")))


def test_both_injectors_answer_to_one_protocol() -> None:
    injectors: list[ErrorInjector] = [RuleInjector(), ModelInjector(Scripted({}))]
    assert [injector.name for injector in injectors] == ["rule", "model"]


@pytest.mark.parametrize(
    ("edits", "old", "new"),
    [({"12 * 8 = 96": "12 * 8 = 98"}, "96", "98"), ({"12 * 8 = 96": "12 + 8 = 20"}, "96", "20")],
)
def test_a_wrong_result_is_verified_by_its_equation(edits: dict[str, str], old: str, new: str) -> None:
    (injection,) = injected(Scripted(edits))
    assert injection.verified == "equation"  # type: ignore[attr-defined]
    assert (injection.old_value, injection.new_value) == (old, new)  # type: ignore[attr-defined]
    row = build_pair(PROBLEMS[0].item, injection, "step")  # type: ignore[arg-type]
    assert faults(row, PENS) == []


def test_edits_without_proof_are_given_back_only_when_asked_for() -> None:
    scripted = Scripted({"pens remain": "pens are lost"})
    assert injected(scripted) == []
    (injection,) = injected(scripted, unverified=True)
    assert injection.verified == "none"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "edits",
    [
        {},
        {"12 * 8 = 96": "12  *  8 = 96"},
        {"96 pens.": "98 pens by mistake."},
        {"so 12 * 8 = 96 pens": "96"},
        {"12 * 8 = 96": "8 * 12 = 96"},
    ],
)
def test_edits_that_change_nothing_or_give_themselves_away_are_dropped(edits: dict[str, str]) -> None:
    assert injected(Scripted(edits)) == []


@pytest.mark.parametrize("mode", ["suffix", "full"])
def test_the_consequences_of_a_models_error_follow_by_rule(mode: str) -> None:
    (injection,) = injected(Scripted({"12 * 8 = 96": "12 * 9 = 108"}), mode=mode)
    row = build_pair(PROBLEMS[0].item, injection, mode)  # type: ignore[arg-type]
    assert row["rejected"].endswith(
        "108 - 30 = 78 pens remain.\nStep 3: Sold at $2 each he earns 78 * 2 = 156 dollars.\nThe answer is 156"
    )
    assert row["rejected_answer"] == "156"


def test_the_request_has_problem_beginning_and_passage() -> None:
    scripted = Scripted({})
    injected(scripted)
    assert len(scripted.prompts) == 3
    for prompt in scripted.prompts:
        assert PROBLEMS[0].prompt in prompt
        assert any(text in prompt for text in INSTRUCTIONS.values())
        assert prompt.endswith("```\n")


@pytest.mark.parametrize(
    ("reply", "passage"),
    [
        ("So it is 5.\n```", "So it is 5."),
        ("Sure:\n```text\nSo it is 5.\n```", "So it is 5."),
        ("So it is 5.", None),
        ("```", None),
        ("", None),
    ],
)
def test_a_reply_counts_only_up_to_its_fence(reply: str, passage: str | None) -> None:
    assert parse_reply(reply) == passage


def test_kinds_follow_from_what_a_step_has() -> None:
    assert edit_kinds("no numbers") == ["wording"]
    assert edit_kinds("just 5") == ["one_value"]
    assert edit_kinds("2 and 5") == ["related_values"]
    assert set(edit_kinds("2 + 5 = 7")) == {"related_values", "substitution", "deletion", "symbol", "swap"}


def test_only_the_last_sentences_of_a_long_step_are_offered() -> None:
    assert passage_of("A. B. C. D. E. F.") == "C. D. E. F."
    assert passage_of("A. B.") == "A. B."


def test_a_step_number_is_kept() -> None:
    item: SolutionItem = PROBLEMS[0].item
    assert item.steps.body(2) == BODIES[2]
