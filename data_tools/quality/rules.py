"""The rules that a single row can break, by name. `lint` counts them, `filter` leaves out the rows that break them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from data_tools.answers import final_answer
from data_tools.command import Options
from data_tools.duplicates import tokens
from data_tools.equality import compare_answers
from data_tools.errors import DataToolsError
from data_tools.fields import optional_text
from data_tools.quality import damage
from data_tools.quality.similarity import at_least_similar
from data_tools.texts import RowTexts, row_texts


class Limits(Options):
    """The numbers in the rules."""

    min_difference: float = Field(
        0.02, ge=0, le=1, description="near_identical: least edit distance of the sides, as a share of the longer one"
    )
    max_length_ratio: float = Field(3.0, ge=1, description="length_ratio: longer side over shorter side, in characters")
    max_characters: int = Field(100_000, ge=1, description="too_long: characters of one text")
    max_copied: float = Field(
        0.5, ge=0, le=1, description="prompt_leak: share of the prompt's 8-word runs that a response may repeat"
    )


@dataclass(frozen=True)
class Checked:
    """A row as rules see it."""

    record: Mapping[str, Any]
    texts: RowTexts
    limits: Limits


Check = Callable[[Checked], str | None]


@dataclass(frozen=True)
class Rule:
    """What is wrong, in words, and the function that finds it: a detail for the log, or None."""

    says: str
    check: Check
    by_default: bool = True


def broken(record: Mapping[str, Any], limits: Limits, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The rules among `names` that a row breaks, with details."""
    checked = Checked(record, row_texts(record), limits)
    for name in names:
        detail = RULES[name].check(checked)
        if detail is not None:
            yield name, detail


def chosen_rules(given: Sequence[str], *, everything: bool = False) -> list[str]:
    """The names that are asked for, or the default ones. Raises: `DataToolsError` for an unknown one."""
    unknown = [name for name in given if name not in RULES]
    if unknown:
        raise DataToolsError(f"there is no rule '{unknown[0]}'. Rules: {', '.join(RULES)}.")
    return list(dict.fromkeys(given)) or [name for name, rule in RULES.items() if everything or rule.by_default]


# ------------------------------------------------------------------------------------------------------- the rules


def _unreadable(row: Checked) -> str | None:
    return "; ".join(row.texts.faults) or None


def _empty(row: Checked) -> str | None:
    blank = [name for name, text in row.texts.all if not text.strip()]
    missing = row.texts.prompt == "" and row.texts.faults
    names = [name for name in blank if not (name == "prompt" and missing)]
    return f"{names[0]} is empty" if names else None


def _too_long(row: Checked) -> str | None:
    name, text = max(row.texts.all, key=lambda item: len(item[1]))
    return f"{name} has {len(text):,} characters" if len(text) > row.limits.max_characters else None


def _identical(row: Checked) -> str | None:
    chosen = row.texts.chosen
    if chosen is None:
        return None
    same = any(chosen.split() == text.split() for text in row.texts.rejected)
    return "chosen and rejected are the same text" if same else None


def _near_identical(row: Checked) -> str | None:
    """Pairs that say what was edited in them are close on purpose: for them only a difference in dress counts."""
    chosen, edited = row.texts.chosen, row.record.get("error_kind") or row.record.get("diff_spans_rejected")
    for text in row.texts.rejected if chosen is not None else ():
        assert chosen is not None
        if chosen.split() == text.split():
            continue
        if _bare(chosen) == _bare(text):
            return "chosen and rejected differ in case, punctuation and white space only"
        if not edited and at_least_similar(chosen, text, 1 - row.limits.min_difference):
            return f"chosen and rejected differ in less than {100 * row.limits.min_difference:g} % of their characters"
    return None


def _length_ratio(row: Checked) -> str | None:
    for text in row.texts.rejected if row.texts.chosen is not None else ():
        long, short = sorted((len(row.texts.chosen or ""), len(text)), reverse=True)
        if short and long > row.limits.max_length_ratio * short:
            return f"one side is {long / short:.1f} times as long as the other"
    return None


def _prompt_leak(row: Checked) -> str | None:
    asked = _runs(row.texts.prompt[:20_000])
    if len(asked) < 3:  # too short to tell a repetition from chance
        return None
    for name, text in row.texts.sides:
        share = len(asked & _runs(text[:100_000])) / len(asked)
        if share > row.limits.max_copied:
            return f"{name} repeats {100 * share:.0f} % of the prompt"
    return None


def _foreign_script(row: Checked) -> str | None:
    """A rule for damage, not for translations: it sees scripts, not languages."""
    asked = damage.script(row.texts.prompt)
    for name, text in row.texts.sides:
        answered = damage.script(text)
        if asked and answered and asked != answered:
            return f"{name} is in {answered} script, the prompt in {asked}"
    return None


def _chosen_wrong(row: Checked) -> str | None:
    answer, chosen = _gold(row), row.texts.chosen
    stated = final_answer(chosen) if answer is not None and chosen is not None else None
    if compare_answers(stated, answer, symbolic=False) is False:
        return f"chosen ends in {stated}, the answer is {answer}"
    return None


def _rejected_right(row: Checked) -> str | None:
    answer = _gold(row)
    if answer is None or row.record.get("complete") is False or row.texts.prefix:
        return None  # a step is judged by itself, not by where it leads
    stated = map(final_answer, row.texts.rejected)
    right = any(compare_answers(text, answer, symbolic=False) for text in stated)
    return f"rejected ends in the right answer, {answer}" if right else None


def _gold(row: Checked) -> str | None:
    answer = optional_text(row.record, "answer")
    return answer.strip() if answer is not None and answer.strip() else None


def _texts(find: damage.Damage) -> Check:
    def check(row: Checked) -> str | None:
        for name, text in row.texts.all:
            if (detail := find(text)) is not None:
                return f"{name}: {detail}"
        return None

    return check


_WORD = re.compile(r"\w+|[-+*/=<>^%$]")
LEAK_RUN = 8


def _bare(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _runs(text: str) -> set[tuple[str, ...]]:
    """All runs of eight tokens."""
    words = tokens(text)
    return set(zip(*(words[at:] for at in range(LEAK_RUN)), strict=False))


RULES: dict[str, Rule] = {
    "unreadable": Rule("a text is missing, null, or no text", _unreadable),
    "empty": Rule("a text has nothing but white space", _empty),
    "too_long": Rule("a text is longer than --max-characters", _too_long),
    "identical": Rule("chosen and rejected are the same but for white space", _identical),
    "near_identical": Rule("chosen and rejected hardly differ", _near_identical, by_default=False),
    "length_ratio": Rule("one side is far longer than the other", _length_ratio, by_default=False),
    "prompt_leak": Rule("a response repeats the prompt", _prompt_leak, by_default=False),
    "template_remnant": Rule("pieces of a chat template or transcript", _texts(damage.template_remnant)),
    "mojibake": Rule("UTF-8 that was read as Windows-1252", _texts(damage.mojibake)),
    "replacement_character": Rule("U+FFFD in place of broken bytes", _texts(damage.replacement_character)),
    "control_character": Rule("control characters", _texts(damage.control_character)),
    "invisible_character": Rule("characters without width", _texts(damage.invisible_character), by_default=False),
    "foreign_script": Rule("a response in another script than the prompt", _foreign_script, by_default=False),
    "chosen_wrong_answer": Rule("chosen ends in another answer than `answer`", _chosen_wrong),
    "rejected_right_answer": Rule("rejected ends in `answer`", _rejected_right),
}
"""By name, in the order in which rows are held against them."""
