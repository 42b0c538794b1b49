"""`prefopt data filter`: rows that break no rule."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import Field

from data_tools.command import RunInfo, record_command
from data_tools.duplicates import NgramSet
from data_tools.others import prompts_of
from data_tools.quality.rules import RULES, Limits, broken, chosen_rules
from data_tools.run import Output, RecordFunction, Reject, Row
from data_tools.texts import COLUMNS, row_texts

CONTAMINATED = "contaminated"


class FilterOptions(Limits):
    """Which rules, and the numbers in them."""

    rule: list[str] = Field(
        default_factory=list, description=f"rules to apply, if not the usual ones; may be repeated: {', '.join(RULES)}"
    )
    without: list[str] = Field(default_factory=list, description="rules to leave out; may be repeated")
    against: list[Path] = Field(
        default_factory=list, description="file whose prompts must not be trained on; may be repeated"
    )
    ngram: int = Field(8, ge=2, le=50, description="contaminated: words of one run")
    max_overlap: float = Field(
        0.5, ge=0, le=1, description="contaminated: share of a prompt's runs that may stand in --against"
    )


@record_command(FilterOptions, also=lambda options: options.against, reads=lambda options: COLUMNS)
def filter(options: FilterOptions, run: RunInfo) -> RecordFunction:
    """Leave out rows that break a rule; each is counted and logged under the first that it breaks.

    Rows that stay are written as they are. Without --rule: unreadable, empty, too_long, identical, template_remnant,
    mojibake, replacement_character, control_character, chosen_wrong_answer, rejected_right_answer, and, with --against,
    contaminated.
    """
    chosen_rules(options.without)
    names = [name for name in chosen_rules(options.rule) if name not in options.without]
    overlap = _overlap(options.against, options.ngram)

    def rows(row: Row) -> Iterator[Output]:
        fault = next(broken(row.record, options, names), None)
        if fault is not None:
            yield Reject(*fault)
            return
        share = overlap(row) if overlap else 0.0
        if share > options.max_overlap:
            yield Reject(CONTAMINATED, f"{100 * share:.0f} % of the prompt's runs stand in the given set")
            return
        yield row.record

    return rows


def _overlap(files: Sequence[Path], ngram: int) -> Callable[[Row], float] | None:
    """The share of a row's prompt that stands in the prompts of files; None without files."""
    if not files:
        return None
    known = NgramSet(ngram, (prompt for path in files for prompt in prompts_of(path)))
    return lambda row: known.share(row_texts(row.record).prompt)
