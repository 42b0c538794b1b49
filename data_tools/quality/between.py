"""What is wrong between the rows of a file, and between it and other splits."""

from collections.abc import Sequence
from pathlib import Path

from data_tools.duplicates import NearIndex, digest
from data_tools.duplicates.places import Places, Seen, own, place_of
from data_tools.others import readable
from data_tools.reading import Missed
from data_tools.texts import RowTexts, row_texts

BETWEEN = {
    "duplicate": "the row came before",
    "contradiction": "a text is chosen here and rejected elsewhere, for the same prompt",
    "near_duplicate_prompt": "the prompt is nearly one that came before",
    "prompt_in_other_file": "the prompt also stands in a file of --across",
    "near_prompt_in_other_file": "the prompt is nearly one of a file of --across",
    "contaminated": "runs of the prompt's words stand in a file of --against",
}


class Between:
    """What is wrong between rows: duplicates, contradictions, prompts that stand in another split."""

    def __init__(
        self, near: float, across: Sequence[Path] = (), missed: Missed | None = None, *, same_numbers: bool = True
    ) -> None:
        self._places = Places()
        self._rows, self._prompts, self._others = Seen(), Seen(), Seen()
        self._chosen, self._rejected = Seen(), Seen()
        self._near = NearIndex(near, same_numbers=same_numbers) if near < 1 else None
        for path in across:
            self._remember(path, missed)

    @property
    def prompts(self) -> int:
        """How many different prompts there were."""
        return len(self._prompts)

    def look(self, texts: RowTexts, line: int) -> list[tuple[str, str]]:
        """What is wrong between a row and those before it."""
        prompt = _flat(texts.prompt)
        if not prompt and not texts.sides:
            return []
        place = place_of(0, line)
        found = []
        sides = (f"{side} {_flat(text)}" for side, text in texts.sides)
        before = self._rows.first(digest(prompt, texts.prefix, *sides), place)
        if before is not None:
            found.append(("duplicate", f"the same as {self._places.name(before)}"))
        found += self._contradiction(prompt, texts, place)
        key = digest(prompt)
        new = bool(prompt) and self._prompts.first(key, place) is None
        if prompt and (other := self._others.get(key)) is not None:
            found.append(("prompt_in_other_file", self._places.name(other)))
        elif new:
            found += self._nearly(prompt, place)
        return found

    def _nearly(self, prompt: str, place: int) -> list[tuple[str, str]]:
        near = self._near.find_or_add(prompt, place) if self._near else None
        if near is None:
            return []
        name = "near_duplicate_prompt" if own(near[0]) else "near_prompt_in_other_file"
        return [(name, f"similarity {near[1]:.2f} to {self._places.name(near[0])}")]

    def _contradiction(self, prompt: str, texts: RowTexts, place: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for side, text in texts.sides:
            if side not in ("chosen", "rejected"):
                continue
            key = digest(prompt, texts.prefix, _flat(text))
            mine, theirs = (self._chosen, self._rejected) if side == "chosen" else (self._rejected, self._chosen)
            mine.first(key, place)
            other = theirs.get(key)
            if other is not None and other != place:
                found.append(("contradiction", f"{side} here, the other in {self._places.name(other)}"))
        return found[:1]

    def _remember(self, path: Path, missed: Missed | None) -> None:
        file = self._places.file(path)
        for line, record in readable(path, missed):
            prompt = _flat(row_texts(record).prompt)
            if not prompt:
                continue
            place = place_of(file, line)
            if self._others.first(digest(prompt), place) is None and self._near:
                self._near.find_or_add(prompt, place)


def _flat(text: str) -> str:
    return " ".join(text.split())
