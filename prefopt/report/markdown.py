"""A report as Markdown: the claims, tables and pairs, without the figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from prefopt.report.claims import Claim, compact
from prefopt.report.content import QUANTILE_NAMES, Column, Report, ShownPair
from prefopt.report.guide import READING, REMEDIES
from prefopt.report.texts import Piece

MARK = "<!-- prefopt report -->"
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&$])")


def markdown(report: Report) -> str:
    """The text of `report.md`. Whatever comes from data or settings is escaped or fenced."""
    parts = [MARK, f"# {escaped(report.title)}"]
    for column in report.columns:
        parts += [f"## {escaped(column.name)}", escaped(column.subtitle), f"**{column.findings.verdict}**"]
        parts += [*column.findings.sentences, *(f"Note: {escaped(note)}" for note in column.notes)]
    names = [column.name for column in report.columns]
    parts += ["## Numbers", READING["claims"], _table(["", *names], _claims(report))]
    if report.histograms:
        rows = ([name, measure, *(compact(value) for value in values)] for name, measure, values in report.quantiles)
        parts += ["## Distribution", READING["scores"], _table(["", "measure", *QUANTILE_NAMES], rows)]
    if any(column.gainers for column in report.columns):
        parts += ["## Where the probability went", READING["mass"]]
        parts += [_gainers(column) for column in report.columns if column.gainers]
    if report.curves:
        parts += ["## Over training", READING["curves"], _table(["metric", "", "first", "last"], _curves(report))]
    if any(column.pairs for column in report.columns):
        parts += ["## Pairs to read first", READING["pairs"]]
        for column in report.columns:
            parts += [_pair(column, pair) for pair in column.pairs]
    parts += ["## What to try", _remedies(), "## Settings", READING["settings"]]
    parts.append(_table(["setting", *names], ([row.name, *row.values] for row in report.settings)))
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def fenced(text: str) -> str:
    """Text as a block of code, behind a fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell if number == 1 else escaped(cell) for cell in line)} |"
        for number, line in enumerate(lines)
    )


def _claims(report: Report) -> Iterable[list[str]]:
    for label, found in report.claims:
        yield [label, *(_claim(claim) for claim in found)]


def _claim(claim: Claim | None) -> str:
    if claim is None:
        return ""
    return f"{claim.shown} ({claim.interval})" if claim.interval else claim.shown


def _gainers(column: Column) -> str:
    rows = ([token, f"{pairs:,}", f"{100 * gain:+.1f}"] for token, pairs, gain in column.gainers)
    return f"{escaped(column.name)}:\n\n{_table(['token that gained most', 'pairs', 'mean gain, points'], rows)}"


def _curves(report: Report) -> Iterable[list[str]]:
    for picture in report.curves:
        for column, lines in zip(report.columns, picture.lines, strict=True):
            for name, line in (lines or {}).items():
                (first, start), (last, end) = line[0], line[-1]
                yield [
                    f"{picture.title}: {name}",
                    column.name,
                    f"{compact(start)} at step {first:.0f}",
                    f"{compact(end)} at step {last:.0f}",
                ]


def _pair(column: Column, pair: ShownPair) -> str:
    parts = [f"### {escaped(f'{pair.id} ({column.name})')}", escaped("; ".join(pair.facts)), escaped(pair.branch)]
    for title, text in (
        ("Prompt", pair.prompt),
        ("Chosen", _joined(pair.chosen)),
        ("Rejected", _joined(pair.rejected)),
    ):
        parts += [f"{title}:", fenced(text)]
    return "\n\n".join(filter(None, parts))


def _joined(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def _remedies() -> str:
    return "\n".join(f"- **{remedy.name}** {remedy.text} `{remedy.recipe or remedy.command}`" for remedy in REMEDIES)
