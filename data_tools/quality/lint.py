"""A report on a file of preference data: what is wrong with rows, between rows, and with the file as a whole."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from data_tools.duplicates import NgramSet, digest
from data_tools.duplicates.places import Seen
from data_tools.errors import DataToolsError
from data_tools.others import prompts_of
from data_tools.quality.between import BETWEEN, Between
from data_tools.quality.cues import FOLDS, Sparse, difference, find_cues
from data_tools.quality.lengths import LengthGap
from data_tools.quality.rules import RULES, Limits, broken
from data_tools.quality.surface import VALUES
from data_tools.reading import Missed
from data_tools.run import REPEATED_ID, Row
from data_tools.texts import RowTexts, row_texts

UNREADABLE = "unreadable_record"
FILES = {UNREADABLE: "a line is no record: no JSON object, not UTF-8, damaged; also in files of --across and --against"}
WHOLE = {
    "length": "one side is longer as a rule (effect size of 0.5 and more)",
    "format_cue": "surface features tell chosen from rejected",
}


class LintOptions(Limits):
    """What is looked for, and how much is shown."""

    across: list[Path] = Field(
        default_factory=list, description="another split, in which no prompt should occur again; may be repeated"
    )
    against: list[Path] = Field(
        default_factory=list, description="test set that prompts are held against by n-grams; may be repeated"
    )
    ngram: int = Field(8, ge=2, le=50, description="contaminated: words of one run")
    max_overlap: float = Field(0.5, ge=0, le=1, description="contaminated: share of a prompt's runs in --against")
    near: float = Field(0.8, ge=0.5, le=1, description="Jaccard similarity of near duplicates; 1: none are looked for")
    ignore_numbers: bool = Field(False, description="prompts that differ in numbers can be near duplicates too")
    cue_limit: float = Field(0.65, ge=0.5, le=1, description="accuracy of the surface classifier that is a finding")
    sample: int = Field(3000, ge=100, le=20_000, description="pairs that the surface classifier sees, drawn by --seed")
    ids: int = Field(10, ge=0, description="most row ids that are listed of a finding; 0: all")
    fail_on: list[str] = Field(
        default_factory=list, description="exit with 1 if this is found (a name, or any); may be repeated"
    )


class Findings:
    """Counts by name, with the ids of the first rows of each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.counts: dict[str, int] = {}
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def add(self, name: str, row: Row, detail: str) -> None:
        """One row has a finding."""
        self.counts[name] = self.counts.get(name, 0) + 1
        rows = self._rows.setdefault(name, [])
        if not self._most or len(rows) < self._most:
            rows.append({"id": row.id, "line": row.line, "detail": detail})

    def report(self, total: int) -> dict[str, Any]:
        """What was found, in the order of the rules."""
        says = {name: rule.says for name, rule in RULES.items()} | {REPEATED_ID: "another row has the id"} | BETWEEN
        return {
            name: {
                "count": self.counts[name],
                "share": self.counts[name] / total,
                "says": text,
                "rows": self._rows[name],
            }
            for name, text in says.items()
            if name in self.counts
        }


class Linter:
    """Sees rows one by one. Hashes lie in temporary files, a sample for the classifier in memory."""

    def __init__(self, options: LintOptions, seed: int, missed: Missed | None = None) -> None:
        self._options = options
        self._missed = Missed() if missed is None else missed
        self._random = random.Random(f"lint|{seed}")
        self._rows = 0
        self.findings = Findings(options.ids)
        self.lengths = LengthGap()
        self._sample: list[tuple[Sparse, int]] = []
        prompts = (prompt for path in options.against for prompt in prompts_of(path, self._missed))
        names = NgramSet(options.ngram, prompts)
        self._known = names if options.against else None
        self._ids = Seen()
        self._between = Between(options.near, options.across, self._missed, same_numbers=not options.ignore_numbers)

    def see(self, row: Row) -> None:
        """Look at one row."""
        self._rows += 1
        texts = row_texts(row.record)
        for name, detail in broken(row.record, self._options, tuple(RULES)):
            self.findings.add(name, row, detail)
        if row.record.get("id") is not None and (line := self._ids.first(digest(row.id), row.line)) is not None:
            self.findings.add(REPEATED_ID, row, f"the id of line {line}")
        for name, detail in self._between.look(texts, row.line):
            self.findings.add(name, row, detail)
        if self._known and (share := self._known.share(texts.prompt)) > self._options.max_overlap:
            self.findings.add("contaminated", row, f"{100 * share:.0f} % of the prompt's runs stand in the given set")
        if texts.pair and all(text.strip() for text in texts.pair):
            self.lengths.add(*texts.pair)
            self._draw(texts)

    def report(self) -> dict[str, Any]:
        """All that was found."""
        cues = self._cues()
        return {
            "rows": self._rows,
            "unreadable": self._missed.count,
            "prompts": self._between.prompts,
            "findings": self._unreadable() | self.findings.report(max(self._rows, 1)),
            "length": self.lengths.report(),
            "cues": cues,
            "failed": self._failed(cues),
        }

    def _unreadable(self) -> dict[str, Any]:
        """The finding about records that could not be read; empty if all could."""
        missed = self._missed
        if not missed.count:
            return {}
        most = self._options.ids or len(missed.first)
        rows = [{"id": None, "file": file, "line": at, "detail": says} for file, at, says in missed.first[:most]]
        share = missed.count / (missed.count + self._rows)
        return {UNREADABLE: {"count": missed.count, "share": share, "says": FILES[UNREADABLE], "rows": rows}}

    def _draw(self, texts: RowTexts) -> None:
        """Keep a pair for the classifier: each has the same chance (reservoir sampling)."""
        pairs, place = self.lengths.pairs, len(self._sample)
        if place >= self._options.sample and (place := self._random.randrange(pairs)) >= self._options.sample:
            return
        assert texts.pair is not None
        entry = (difference(*texts.pair), digest(texts.prompt) % FOLDS)
        self._sample[place : place + 1] = [entry]

    def _cues(self) -> dict[str, Any]:
        limit = self._options.cue_limit
        folds = [fold for _, fold in self._sample]
        form = [[item for item in row if item[0] not in VALUES] for row, _ in self._sample]
        found, everything = find_cues(form, folds), find_cues([row for row, _ in self._sample], folds)
        return {
            "pairs": found.pairs,
            "accuracy": found.accuracy,
            "standard_error": found.error,
            "exceeds": found.exceeds(limit),
            "accuracy_with_values": everything.accuracy,
            "strongest": [
                {"cue": cue.name, "more_in": cue.more_in, "accuracy": cue.accuracy, "differs": cue.differs}
                for cue in everything.cues[:5]
            ],
            "sentence": found.sentence(limit),
        }

    def _failed(self, cues: dict[str, Any]) -> list[str]:
        found = [UNREADABLE] if self._missed.count else []
        found += list(self.findings.counts)
        found += ["length"] if abs(self.lengths.effect) >= 0.5 else []
        found += ["format_cue"] if cues["exceeds"] else []
        asked = self._options.fail_on
        return [name for name in found if name in asked or "any" in asked]


def check_names(names: Sequence[str]) -> None:
    """Raises: `DataToolsError` for a finding that there is not."""
    known = (*RULES, *FILES, REPEATED_ID, *BETWEEN, *WHOLE, "any")
    for name in names:
        if name not in known:
            raise DataToolsError(f"--fail-on: there is no finding '{name}'. Findings: {', '.join(known)}.")
