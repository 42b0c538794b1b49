"""What a report shows, put together once for both of its forms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefopt.report.claims import Claim, Findings, compact, written
from prefopt.report.figures import (
    MEASURES,
    POINTS,
    QUANTILES,
    Curves,
    Histogram,
    at_risk,
    curves,
    histograms,
    quantiles,
    sampled,
)
from prefopt.report.folders import Evidence, Pairs, flat
from prefopt.report.moved import moved
from prefopt.report.scored import scored
from prefopt.report.texts import Piece, clipped, compared, visible
from prefopt.report.trained import trained

AT_RISK, GAINERS = 8, 10


@dataclass(frozen=True)
class ShownPair:
    """A pair to be read: its numbers in words, the most telling one first, and both responses in pieces."""

    id: str
    facts: Sequence[str]
    prompt: str
    chosen: Sequence[Piece]
    rejected: Sequence[Piece]
    branch: str = ""

    @property
    def headline(self) -> str:
        """Why it is among the pairs to read first."""
        return self.facts[0] if self.facts else ""


@dataclass(frozen=True)
class Column:
    """One run or diagnosis of a report."""

    name: str
    subtitle: str
    evidence: Evidence
    findings: Findings
    pairs: Sequence[ShownPair]
    gainers: Sequence[tuple[str, int, float]]
    settings: Mapping[str, str]
    notes: Sequence[str]


@dataclass(frozen=True)
class Setting:
    """A row of the table of settings: one value per column, empty where it has no such setting.

    `differs` where columns that have it do not agree.
    """

    name: str
    values: Sequence[str]
    differs: bool


@dataclass(frozen=True)
class Report:
    """Everything that a report shows."""

    columns: Sequence[Column]
    histograms: Mapping[str, Sequence[Histogram | None]]
    """By measure, one for each column."""
    points: Sequence[Sequence[int]]
    """Places of the pairs in each column's scatter."""
    curves: Sequence[Curves]

    @property
    def title(self) -> str:
        """`Preference report: dpo` or `... dpo, dpop`."""
        return f"Preference report: {', '.join(column.name for column in self.columns)}"

    @property
    def settings(self) -> list[Setting]:
        """Settings of all columns; those that differ come first."""
        names = dict.fromkeys(name for column in self.columns for name in column.settings)
        rows = []
        for name in names:
            values = [column.settings.get(name, "") for column in self.columns]
            rows.append(Setting(name, values, len(set(filter(None, values))) > 1))
        return sorted(rows, key=lambda row: not row.differs)

    @property
    def claims(self) -> list[tuple[str, list[Claim | None]]]:
        """Claims side by side: a label, and each column's claim."""
        labels = dict.fromkeys(claim.key for column in self.columns for claim in column.findings.claims)
        rows = []
        for key in labels:
            found = [next((c for c in column.findings.claims if c.key == key), None) for column in self.columns]
            rows.append((next(claim.label for claim in found if claim is not None), found))
        return rows

    @property
    def quantiles(self) -> list[tuple[str, str, list[float]]]:
        """Rows of (column, measure, values at `QUANTILES`), over all pairs."""
        return [
            (column.name, MEASURES[name], values)
            for name in self.histograms
            for column in self.columns
            if column.evidence.pairs is not None and (values := quantiles(column.evidence.pairs, name)) is not None
        ]


QUANTILE_NAMES = tuple(f"{100 * share:g} %" for share in QUANTILES)


def report(evidence: Sequence[Evidence]) -> Report:
    """What there is to show of runs and diagnoses."""
    all_pairs = [found.pairs for found in evidence]
    limit = POINTS // max(1, sum(pairs is not None for pairs in all_pairs))
    return Report(
        [_column(found) for found in evidence],
        _histograms(all_pairs),
        [sampled(pairs, limit) if pairs is not None else [] for pairs in all_pairs],
        curves(evidence),
    )


def _histograms(all_pairs: Sequence[Pairs | None]) -> dict[str, list[Histogram | None]]:
    there = [place for place, pairs in enumerate(all_pairs) if pairs is not None]
    found: dict[str, list[Histogram | None]] = {}
    for name in MEASURES:
        some = dict(zip(there, histograms([all_pairs[k] for k in there], name), strict=True))  # type: ignore[misc]
        if any(some.values()):
            found[name] = [some.get(place) for place in range(len(all_pairs))]
    return found


def _column(evidence: Evidence) -> Column:
    pairs, run = evidence.pairs, evidence.run
    return Column(
        visible(evidence.name),
        visible(_subtitle(evidence)),
        evidence,
        findings(evidence),
        _shown_pairs(pairs) if pairs is not None else [],
        _gainers(pairs) if pairs is not None else [],
        _settings(evidence),
        run.notes if run is not None else (),
    )


def _subtitle(evidence: Evidence) -> str:
    """What was trained or diagnosed: objective, model, pairs."""
    pairs, run = evidence.pairs, evidence.run
    parts = []
    if run is not None:
        plan = run.record.get("plan", {})
        parts += [str(plan[name]) for name in ("objective", "model") if name in plan]
    elif pairs is not None:
        models = pairs.summary.get("models", {})
        parts += [str(models[name].get("name_or_path")) for name in ("policy", "start") if name in models]
    if pairs is not None:
        parts.append(f"{len(pairs):,} pairs {'after' if pairs.moved else 'before'} training")
    return " · ".join(parts)


def findings(evidence: Evidence) -> Findings:
    """What one column of a report comes to."""
    parts = []
    if evidence.pairs is not None:
        parts.append(moved(evidence.pairs) if evidence.pairs.moved else scored(evidence.pairs))
    if evidence.run is not None:
        parts.append(trained(evidence.run))
    return Findings(
        parts[0].verdict,
        tuple(sentence for part in parts for sentence in part.sentences),
        tuple(claim for part in parts for claim in part.claims),
    )


def _shown_pairs(pairs: Pairs) -> list[ShownPair]:
    places = at_risk(pairs, AT_RISK)
    rows = pairs.rows(places)
    first = "chosen_delta" if pairs.moved else "ln_ches"
    return [_shown(rows[place], first) for place in places]


def _shown(row: Mapping[str, Any], first: str) -> ShownPair:
    chosen, rejected = compared(*(visible(row[side] or "") for side in ("chosen", "rejected")))
    names = (name for name in dict.fromkeys((first, *MEASURES)) if row.get(name) is not None)
    facts = [_fact(MEASURES[name], row[name]) for name in names]
    return ShownPair(
        clipped(visible(str(row["id"])), 120),
        facts,
        clipped(visible(row["prompt"] or ""), 2_000),
        chosen,
        rejected,
        _branch(row),
    )


def _fact(label: str, value: float) -> str:
    """`length gap, chosen − rejected, tokens` and 3 become `length gap 3 tokens`."""
    name, *rest = label.split(", ")
    return " ".join([name, compact(value), *rest[-1:]])


def _branch(row: Mapping[str, Any]) -> str:
    """Where the probability went at the first differing token, in one sentence."""
    if row.get("branch_gainer") is None:
        return ""
    moves = [
        f"{side} {_quoted(row[f'branch_{side}'])} from {written(row[f'branch_{side}_start'], 'share')} to "
        f"{written(row[f'branch_{side}_now'], 'share')}"
        for side in ("chosen", "rejected")
    ]
    third = " (neither of the two)" if row["branch_gainer_is_third"] else ""
    gain = f"{_quoted(row['branch_gainer'])}{third} gained most, {100 * row['branch_gain']:+.1f} points"
    return f"Where they part: {', '.join(moves)}; {gain}."


def _quoted(token: str) -> str:
    return f"“{visible(token)}”"


def _gainers(pairs: Pairs) -> list[tuple[str, int, float]]:
    """Tokens that most often gained most where the responses part: text, pairs, mean gain."""
    found = pairs.summary.get("movement", {}).get("branch", {}).get("top_gainers", [])
    return [(_quoted(item["token"]), item["pairs"], item["mean_gain"]) for item in found[:GAINERS]]


_RECORD = ("commit", "device", "processes", "model", "reference", "plan", "versions", "started")
_SUMMARY = ("models", "settings", "versions")


def _settings(evidence: Evidence) -> dict[str, str]:
    found: dict[str, Any] = {}
    if evidence.run is not None:
        record = {name: evidence.run.record[name] for name in _RECORD if name in evidence.run.record}
        found |= {**evidence.run.settings, **flat({"run": record})}
    elif evidence.pairs is not None:
        summary = {name: evidence.pairs.summary[name] for name in _SUMMARY if name in evidence.pairs.summary}
        found |= flat({"diagnose": summary})
    return {name: clipped(visible(_value(value)), 300) for name, value in found.items() if value is not None}


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
