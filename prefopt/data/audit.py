"""What became of the records of a data set: rows left out and why, what happened to the others, how long they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefopt.data import rows
from prefopt.errors import DataError, did_you_mean
from prefopt.runs import write_json

_SHOWN = 5
"""Ids that a sentence names."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of one side, in tokens."""

    mean: float
    median: float
    max: int

    @classmethod
    def of(cls, values: Sequence[int]) -> Lengths:
        """Of at least one length."""
        ordered = sorted(values)
        half, odd = divmod(len(ordered), 2)
        median = float(ordered[half]) if odd else (ordered[half - 1] + ordered[half]) / 2
        return cls(round(sum(ordered) / len(ordered), 1), median, ordered[-1])


@dataclass(frozen=True)
class Audit:
    """The account of one data set.

    `read` and `kept` count rows; with `negatives: expand` a record counts once per pair. `lost` has the ids of the rows
    left out by reason, `details` the particulars of the first of each. `notes` counts rows to which something happened,
    `noted` has the first ids. `moved` counts characters that left a prompt with a token that spans prompt and response.
    `longer_chosen` is the share of pairs whose chosen response is the longer one. `columns` are those that hold
    something, `unused` those of them that are not read. `rules` say how text becomes ids, for whoever has to feed a
    server the same. `fingerprint` names the content of the rows.
    """

    name: str
    sources: tuple[Mapping[str, Any], ...]
    fingerprint: str
    read: int
    kept: int
    lost: Mapping[str, Sequence[str]] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)
    noted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    moved: int = 0
    lengths: Mapping[str, Lengths] = field(default_factory=dict)
    longer_chosen: float | None = None
    columns: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    rules: Mapping[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Rows left out, by reason."""
        return {reason: len(ids) for reason, ids in self.lost.items()}

    def to_json(self) -> dict[str, Any]:
        """Everything, every id included, as JSON values."""
        return {
            "name": self.name,
            "sources": [dict(source) for source in self.sources],
            "fingerprint": self.fingerprint,
            "rows": {"read": self.read, "kept": self.kept, "lost": self.read - self.kept},
            "lost": {
                reason: {
                    "count": len(ids),
                    "why": rows.REASONS[reason],
                    "first": self.details[reason],
                    "ids": list(ids),
                }
                for reason, ids in self.lost.items()
            },
            "notes": {
                note: {"count": count, "what": rows.NOTES[note], "first_ids": list(self.noted.get(note, ()))}
                for note, count in self.notes.items()
            },
            "moved_characters": self.moved,
            "lengths": {side: {"mean": v.mean, "median": v.median, "max": v.max} for side, v in self.lengths.items()},
            "longer_chosen": self.longer_chosen,
            "unused_columns": list(self.unused),
            "rules": dict(self.rules),
        }

    def lines(self) -> list[str]:
        """The account in a few sentences."""
        found = [f"{self.name}: {self.kept} of {self.read} rows can be used."]
        if self.lost:
            found.append(f"Left out: {self._reasons()}.")
        if self.lengths:
            sides = [f"{side} {v.median:.0f} (at most {v.max})" for side, v in self.lengths.items()]
            share = (
                "" if self.longer_chosen is None else f"; chosen is the longer one in {self.longer_chosen:.0%} of pairs"
            )
            found.append(f"Median length in tokens: {', '.join(sides)}{share}.")
        found += [f"{count} {rows.NOTES[note]}{self._more(note)}." for note, count in self.notes.items()]
        if self.unused:
            found.append(f"Columns that are not read: {', '.join(self.unused)}.")
        return found

    def write(self, path: Path) -> None:
        """The account as a JSON file of one data set, whole or not at all."""
        write_report(path, [self])

    def check(self, *, max_lost: float) -> None:
        """Stop when too much was lost; rows that are `undesirable` are left out on purpose and count as not read.

        Raises: `DataError` with counts by reason, first ids, and what to do about it; and when the tokenizer knows
        next to no word of any row.
        """
        read = self.read - len(self.lost.get(rows.UNDESIRABLE, ()))
        lost = read - self.kept
        if self.kept and self.notes.get(rows.UNKNOWN_TOKENS) == self.kept:
            raise DataError(
                f"{self.name}: all {self.kept} rows {rows.NOTES[rows.UNKNOWN_TOKENS].removeprefix('rows ')}. The "
                "tokenizer does not fit these texts; nothing can be learned from them."
            )
        if read and self.kept and lost <= max_lost * read:
            return
        what = "no row can be used" if not self.kept else f"{lost} of {read} rows ({lost / read:.0%}) cannot be used"
        limit = "" if not self.kept else f", more than data.max_lost allows ({max_lost:.0%})"
        details = [f"  {reason}: {len(ids)} ({self._first(reason)})" for reason, ids in self.lost.items()]
        raise DataError("\n".join([f"{self.name}: {what}{limit}.", *details, f"  {self._advice()}"]))

    def _reasons(self) -> str:
        return ", ".join(
            f"{len(ids)} {reason} ({', '.join(ids[:_SHOWN])}{', ...' * (len(ids) > _SHOWN)})"
            for reason, ids in self.lost.items()
        )

    def _first(self, reason: str) -> str:
        ids = self.lost[reason]
        return f"{', '.join(ids[:_SHOWN])}{', ...' * (len(ids) > _SHOWN)}; the first: {self.details[reason]}"

    def _more(self, note: str) -> str:
        if note == rows.BOUNDARY_MOVED:
            return f" ({self.moved} characters)"
        return f" ({', '.join(self.noted[note])})" if note in _NAMED else ""

    def _advice(self) -> str:
        most = max(self.lost, key=lambda r: len(self.lost[r]) if r != rows.UNDESIRABLE else 0, default="")
        if most == rows.NULL_FIELD:
            return f"The records have the columns {', '.join(self.columns)}. {_ADVICE[most]}."
        return _ADVICE.get(most, "Mend the rows or leave them out") + "; data.max_lost sets how many may be lost."


_NAMED = (
    rows.BOS_IN_TEXT,
    rows.END_LOST_ONE_SIDE,
    rows.FIRST_TOKEN_UNSCORED,
    rows.SCORES_IGNORED,
    rows.DUPLICATE_ID,
    rows.UNKNOWN_TOKENS,
)
_ADVICE = {
    rows.EMPTY_ANSWER: "`data.allow_empty: true` keeps rows with an empty response",
    rows.IDENTICAL: "A pair needs two different responses",
    rows.IDENTICAL_CUT: "A larger `data.max_length` keeps the part that differs",
    rows.NO_ANSWER_LEFT: "A larger `data.max_length` leaves room for the response",
    rows.PROMPT_TOO_LONG: "A larger `data.max_length` leaves room; `data.truncate: prompt_start` cuts prompts",
    rows.TOO_LONG: "A larger `data.max_length` takes such rows; `data.truncate: response` cuts them",
    rows.BAD_MESSAGE: "Prompt, chosen and rejected are text or lists of messages with 'role' and 'content'",
    rows.NULL_FIELD: "`columns:` of the source maps our column names to those of the file",
    rows.BOUNDARY_MISMATCH: "Another `data.chat_template` may render the conversations in a way that can be split",
    rows.NONFINITE: "Scores must be finite numbers",
    rows.UNDESIRABLE: "A loss that reads labels learns from undesirable completions; this one needs `label: true`",
    rows.STEP_MISMATCH: "There is one step reward for each step, and `first_error_step` counts steps from 1",
    rows.TOKEN_MISMATCH: "Values for tokens fit one tokenizer and one way of rendering; make them with this model's",
}


def write_report(path: Path, audits: Sequence[Audit]) -> None:
    """The accounts of several data sets in one file, by name; whole or not at all."""
    write_json(path, {audit.name: audit.to_json() for audit in audits})


class Tally:
    """Counts rows of the tokenized table, batch by batch, and becomes an `Audit`."""

    def __init__(self) -> None:
        self.read = self.kept = self.moved = 0
        self.lost: dict[str, list[str]] = {}
        self.details: dict[str, str] = {}
        self.notes: Counter[str] = Counter()
        self.noted: dict[str, list[str]] = {}
        self.columns: set[str] = set()
        self.has: set[str] = set()
        self.lengths: list[list[int]] = [[], [], []]
        self.longer = self.pairs = 0

    def add(self, batch: Mapping[str, Sequence[Any]], ids: Sequence[str]) -> None:
        """Count a batch of `reason`, `detail`, `notes`, `moved`, `lengths`, `has` under these ids."""
        for number, id_ in enumerate(ids):
            self.read += 1
            reason = batch["reason"][number]
            if reason is not None:
                self.lost.setdefault(reason, []).append(id_)
                self.details.setdefault(reason, batch["detail"][number])
                continue
            self.kept += 1
            self.moved += batch["moved"][number]
            self.has.update(batch["has"][number])
            for note in dict.fromkeys(batch["notes"][number]):
                self.note(note, id_)
            self._measure(batch["lengths"][number])

    def note(self, note: str, id_: str) -> None:
        """Something happened to a row that is kept."""
        self.notes[note] += 1
        first = self.noted.setdefault(note, [])
        if len(first) < _SHOWN:
            first.append(id_)

    def _measure(self, lengths: Sequence[int]) -> None:
        prompt, chosen, *others = lengths
        self.lengths[0].append(prompt)
        self.lengths[1].append(chosen)
        self.lengths[2].extend(others)
        self.longer += sum(chosen > other for other in others)
        self.pairs += len(others)

    def audit(
        self,
        *,
        name: str,
        sources: Sequence[Mapping[str, Any]],
        fingerprint: str,
        rules: Mapping[str, Any],
        read: Collection[str] = rows.READ_COLUMNS,
    ) -> Audit:
        """The account so far; `read` are the columns that are."""
        sides = ("prompt", "chosen" if self.pairs else "response", "rejected")
        lengths = {side: Lengths.of(values) for side, values in zip(sides, self.lengths, strict=True) if values}
        by_count = sorted(self.lost.items(), key=lambda item: -len(item[1]))
        return Audit(
            name=name,
            sources=tuple(sources),
            fingerprint=fingerprint,
            read=self.read,
            kept=self.kept,
            lost=dict(by_count),
            details=self.details,
            notes=dict(self.notes.most_common()),
            noted=self.noted,
            moved=self.moved,
            lengths=lengths,
            longer_chosen=self.longer / self.pairs if self.pairs else None,
            columns=tuple(sorted(self.columns)),
            unused=tuple(sorted(self.columns - set(read) - set(rows.ALIASES))),
            rules=rules,
        )


def missing_column(column: str, found: set[str]) -> str:
    """That a column which the source's map names does not exist."""
    return f"no record has the column '{column}'.{did_you_mean(column, found)} Columns: {', '.join(sorted(found))}."
