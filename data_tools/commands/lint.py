"""`prefopt data lint`: what is wrong with a file of preference data."""

from collections.abc import Callable, Iterator

from data_tools.command import Report, RunInfo, report_command
from data_tools.quality.lint import Linter, LintOptions, check_names
from data_tools.run import Row
from data_tools.texts import COLUMNS


def _text(report: Report) -> Iterator[str]:
    """The report as lines."""
    yield f"{report['rows']} rows, {report['prompts']} different prompts."
    if report["unreadable"]:
        yield f"{report['unreadable']} records could not be read, and nothing below is about them."
    findings = report["findings"]
    width = max(map(len, findings), default=0)
    for name, found in findings.items():
        yield f"{name.ljust(width)}  {found['count']:>7}  {100 * found['share']:5.1f} %  {found['says']}"
        for row in found["rows"][:3]:
            yield f"{' ' * width}    {row['id'] or row['file']} (line {row['line']}): {row['detail']}"
        more = found["count"] - len(found["rows"][:3])
        if more > 0:
            yield f"{' ' * width}    and {more} more (--json lists as many rows as --ids says)"
    if not findings:
        yield "No row breaks a rule."
    yield from _of_pairs(report)
    if report["failed"]:
        yield f"Failed on: {', '.join(report['failed'])}."


def _of_pairs(report: Report) -> Iterator[str]:
    if not report["length"]["pairs"]:
        yield "No pairs, so lengths and format are not compared."
        return
    yield report["length"]["sentence"]
    yield report["cues"]["sentence"]
    if report["cues"]["strongest"]:
        yield f"With how large and how round numbers are: {100 * report['cues']['accuracy_with_values']:.0f} %."


@report_command(
    LintOptions,
    also=lambda options: [*options.across, *options.against],
    text=_text,
    failed=lambda report: bool(report["failed"]),
    reads=lambda options: COLUMNS,
)
def lint(options: LintOptions, run: RunInfo) -> Callable[[Iterator[Row]], Report]:
    """Report what is wrong with a file of preference data; nothing is changed.

    Rows: empty, identical and near-identical sides, repeated prompts, remains of templates, damaged encodings, answers
    that contradict the labels. Between rows: duplicates, contradictions, prompts of another split (--across) or of a
    test set (--against). The whole file: how much longer one side is, and whether a classifier that only sees the
    surface tells the sides apart. Records that cannot be read, here or in those files, are a finding of their own; a
    file of which none can be read is refused. The exit code is 0 whatever is found, unless --fail-on asks otherwise.
    """
    check_names(options.fail_on)
    linter = Linter(options, run.seed, run.missed)

    def look(rows: Iterator[Row]) -> Report:
        for row in rows:
            linter.see(row)
        return linter.report()

    return look
