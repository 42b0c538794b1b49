"""A report as one HTML page that opens offline: nothing is fetched, and nothing in the data can run.

Styles and scripts are files of their own in `assets`, put into the page and allowed there by their hashes. Numbers and
texts of figures travel as JSON that is never parsed as HTML; everything else goes through the template's escaping.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import isfinite
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from prefopt.report.claims import Claim, compact
from prefopt.report.content import QUANTILE_NAMES, Column, Report
from prefopt.report.figures import MEASURES, SCORES, Curves, axes
from prefopt.report.folders import TEXTS
from prefopt.report.guide import READING, REMEDIES
from prefopt.report.texts import clipped, visible

MARK = '<meta name="generator" content="prefopt report">'
_SCRIPTS = ("draw.js", "charts.js", "pairs.js", "page.js")
_TILES = ("chosen_dropped", "both_dropped", "chosen_delta", "rejected_delta", "margin_grew", "gainer_is_third")
_TILES_BEFORE = ("ln_ches_median", "ln_ches_high", "near_duplicates", "flagged", "length_gap")
_TEXT_BYTES = 3_000_000
"""Of pairs' texts in one page."""
_LONGEST, _SHORTEST = 2_000, 60
_ROWS = 12
"""Steps of a curve that its table shows."""


def page(report: Report) -> str:
    """The text of `report.html`."""
    style, script = _asset("report.css"), "\n".join(map(_asset, _SCRIPTS))
    template = _environment().from_string(_asset("report.html.jinja"))
    return template.render(
        report=report,
        mark=Markup(MARK),
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        data=Markup(embedded(_data(report))),
        reading=READING,
        remedies=REMEDIES,
        measures=MEASURES,
        scores=SCORES,
        quantile_names=QUANTILE_NAMES,
        tiles=_tiles,
        sample_of=lambda column: _sample(column, report),
        axes=axes,
        curve_rows=_curve_rows,
    )


def embedded(value: Any) -> str:
    """JSON for a `<script type="application/json">`: no character in it can end the element or the line."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


@cache
def _asset(name: str) -> str:
    return (files("prefopt.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def _environment() -> Environment:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters["compact"] = compact
    return environment


def _tiles(column: Column) -> list[Claim]:
    names = _TILES if any(claim.key == "chosen_dropped" for claim in column.findings.claims) else _TILES_BEFORE
    found = [claim for claim in column.findings.claims if claim.key in names]
    return found or list(column.findings.claims[:6])


def _sample(column: Column, report: Report) -> str:
    """How many of a column's pairs the scatter shows, and which."""
    shown, total = len(report.points[report.columns.index(column)]), len(column.evidence.pairs or ())
    if shown == total:
        return f"All {total:,} pairs."
    return f"{shown:,} of {total:,} pairs: the most extreme ones and a random sample of the others."


def _curve_rows(picture: Curves, place: int) -> list[tuple[float, list[float | None]]]:
    """A few steps of one run's curves, the first and the last among them."""
    lines = picture.lines[place] or {}
    steps = sorted({step for line in lines.values() for step, _ in line})
    every = max(1, -(-len(steps) // _ROWS))
    kept = dict.fromkeys([*steps[::every], *steps[-1:]])
    values = [dict(line) for line in lines.values()]
    return [(step, [line.get(step) for line in values]) for step in kept]


def _data(report: Report) -> dict[str, Any]:
    texts = _Texts(report)
    return {
        "measures": MEASURES,
        "columns": [
            {
                "name": column.name,
                "moved": column.evidence.pairs is not None and column.evidence.pairs.moved,
                "claims": [asdict(claim) for claim in column.findings.claims],
                "points": texts.points[place],
            }
            for place, column in enumerate(report.columns)
        ],
        "histograms": {
            name: [None if bins is None else asdict(bins) for bins in found]
            for name, found in report.histograms.items()
        },
        "curves": [{"title": picture.title, "lines": picture.lines} for picture in report.curves],
        "texts": texts.shown(),
    }


class _Texts:
    """Texts of all points, each kept once and none longer than what fits."""

    def __init__(self, report: Report) -> None:
        self.numbers: dict[str, int] = {}
        self.points = [
            self._points(column, places) for column, places in zip(report.columns, report.points, strict=True)
        ]

    def _points(self, column: Column, places: Sequence[int]) -> dict[str, Any] | None:
        pairs = column.evidence.pairs
        if pairs is None:
            return None
        rows = pairs.rows(places)
        return {
            "total": len(pairs),
            "ids": [clipped(visible(str(rows[place]["id"])), 80) for place in places],
            "values": {
                name: [_short(rows[place][name]) for place in places] for name in MEASURES if name in pairs.numbers
            },
            "texts": [[self._number(rows[place], name) for name in TEXTS] for place in places],
        }

    def _number(self, row: Mapping[str, Any], name: str) -> int:
        text = clipped(visible(row[name] or ""), _LONGEST)
        return self.numbers.setdefault(text, len(self.numbers))

    def shown(self) -> list[str]:
        """All texts by number, cut to equal length when there are too many."""
        limit = _LONGEST
        while True:
            texts = [clipped(text, limit) for text in self.numbers]
            size = len(embedded(texts).encode())
            if limit <= _SHORTEST or size <= _TEXT_BYTES:
                return texts
            limit = max(_SHORTEST, int(limit * min(0.9, _TEXT_BYTES / size)))


def _short(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else float(f"{value:.5g}")
