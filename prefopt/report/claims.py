"""What a report says in plain words. Each claim is a number that the table of pairs or the metrics give again."""

from __future__ import annotations

from dataclasses import dataclass

from prefopt.report.estimates import Estimate

WEAK = 0.2
"""Size of a rank correlation below which a score is said to tell little."""


@dataclass(frozen=True)
class Claim:
    """One number: `key` is its name, `label` says in words what it is, `unit` is share, nats, nats per token, tokens or
    none.

    `low` and `high` bound its 95 % interval where it has one. `count` is what it was taken over, in `of`.
    """

    key: str
    label: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    count: int | None = None
    of: str = "pairs"

    @property
    def shown(self) -> str:
        """The number with its unit: `65.0 %`, `-1.23 nats`."""
        return written(self.value, self.unit)

    @property
    def interval(self) -> str:
        """`60.6 to 69.1 %`, or nothing."""
        if self.low is None or self.high is None:
            return ""
        low, high = written(self.low, self.unit), written(self.high, self.unit)
        return f"{low.removesuffix(_suffix(self.unit))} to {high}"


def written(value: float, unit: str) -> str:
    """A number as people read it."""
    if unit == "share":
        return f"{100 * value:.1f} %"
    if not unit:
        return compact(value)
    text = f"{value:+.4f}" if unit == "nats per token" else f"{value:+.2f}"
    return text.replace("-", "−") + _suffix(unit)


def compact(value: float) -> str:
    """Four digits, more only before the decimal point: `0.7634`, `−94,916`."""
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"
    return text.replace("-", "−")


def _suffix(unit: str) -> str:
    return {"share": " %", "": ""}.get(unit, f" {unit}")


@dataclass(frozen=True)
class Findings:
    """`verdict` is the headline, `sentences` explain it, `claims` are the numbers behind both."""

    verdict: str
    sentences: tuple[str, ...]
    claims: tuple[Claim, ...]


def estimated(key: str, label: str, unit: str, found: Estimate) -> Claim:
    """A claim that has its interval from an estimate."""
    return Claim(key, label, found.value, unit, found.low, found.high, found.count)


def within(claim: Claim) -> str:
    """` (95 % interval ...)` with a leading space, or nothing."""
    return f" (95 % interval {claim.interval})" if claim.interval else ""


def signed(value: float) -> str:
    """A rank correlation as people read it."""
    return f"{value:+.2f}".replace("-", "−")
