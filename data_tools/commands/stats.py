"""`prefopt data stats`: what a file has in it."""

from collections import Counter
from collections.abc import Callable, Iterator

from pydantic import Field

from data_tools.command import Options, Report, RunInfo, report_command
from data_tools.fields import optional_text
from data_tools.run import Row
from data_tools.sample import Reservoir

_TEXTS = ("prompt", "initial_reason_steps", "chosen", "rejected", "solution", "completion")
_VALUES = ("pair_kind", "error_kind", "verified", "first_error_step", "dataset", "complete", "label")


class StatsOptions(Options):
    """How much is shown."""

    top: int = Field(20, ge=1, description="most values that are listed of a column")
    sample: int = Field(10_000, ge=100, description="how many lengths the quantiles are taken from, drawn with --seed")


@report_command(StatsOptions, reads=lambda options: (*_TEXTS, *_VALUES))
def stats(options: StatsOptions, run: RunInfo) -> Callable[[Iterator[Row]], Report]:
    """Count rows, columns, lengths and kinds. Memory does not grow with the file.

    Records that cannot be read are counted as `unreadable`; a file of such records only is refused.
    """

    def table(rows: Iterator[Row]) -> Report:
        count = 0
        columns: Counter[str] = Counter()
        values: dict[str, Counter[str]] = {name: Counter() for name in _VALUES}
        lengths = {name: Reservoir(options.sample, f"{run.seed}|{name}") for name in _TEXTS}
        longer: Counter[str] = Counter()
        for row in rows:
            count += 1
            record = row.record
            columns.update(list(record))
            texts = {name: text for name in _TEXTS if (text := optional_text(record, name)) is not None}
            for name, text in texts.items():
                lengths[name].add(len(text))
            for name in _VALUES:
                if name in record and len(values[name]) < 10_000:
                    values[name][str(record[name])] += 1
            if "chosen" in texts and "rejected" in texts:
                longer[_compare(len(texts["chosen"]), len(texts["rejected"]))] += 1
        return {
            "rows": count,
            "unreadable": run.missed.count,
            "columns": dict(columns.most_common()),
            "characters": {name: lengths[name].summary() for name in _TEXTS if lengths[name].seen},
            **({"longer side": dict(longer.most_common())} if longer else {}),
            **{name: dict(found.most_common(options.top)) for name, found in values.items() if found},
        }

    return table


def _compare(chosen: int, rejected: int) -> str:
    return "chosen" if chosen > rejected else "rejected" if rejected > chosen else "equal"
