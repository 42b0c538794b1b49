"""What the converters of all shapes share."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from data_tools.errors import RecordError
from data_tools.reading import Record

Message = dict[str, Any]
PairChoice = Literal["best_worst", "best_random", "all", "group"]


@dataclass(frozen=True)
class ShapeOptions:
    """How rows are made where a shape leaves a choice."""

    pairs: PairChoice = "best_worst"
    min_gap: float = 0.0
    step_separator: str = "\n"
    seed: int = 0


_LABELS: dict[Any, bool] = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True)
class Source:
    """A record in a foreign shape, with its id for random draws and its place for messages."""

    record: Mapping[str, Any]
    id: str
    where: str
    options: ShapeOptions = field(default_factory=ShapeOptions)

    def text(self, name: str) -> str:
        """The text of a column. Raises: `RecordError` if it is missing or no text."""
        value = self.record.get(name)
        if isinstance(value, str):
            return value
        found = "is missing" if name not in self.record else f"must be text; got {type(value).__name__}"
        raise RecordError(
            f"{self.where}: column '{name}' {found}.",
            reason="missing_column" if name not in self.record else "no_text",
        )

    def label(self, name: str) -> dict[str, bool]:
        """`label` as a row has it, from a column with true or false, 1 or 0, also as text; nothing if it is missing.

        Raises: `RecordError` for anything else, which would be a label lost.
        """
        value = self.record.get(name)
        if value is None:
            return {}
        found = _LABELS.get(value.strip().lower() if isinstance(value, str) else value if _is_number(value) else "?")
        if found is None:
            raise self.refuse("bad_label", f"column '{name}' must be true or false; got {value!r}.")
        return {"label": found}

    def refuse(self, reason: str, sentence: str) -> RecordError:
        """An error about this record."""
        return RecordError(f"{self.where}: {sentence}", reason=reason)


@dataclass(frozen=True)
class Shape:
    """A shape: which columns tell it, and how a record becomes rows.

    `uses` are columns that are used up; all others go along with every row.
    """

    says: str
    fits: Callable[[Mapping[str, Any]], bool]
    rows: Callable[[Source], Iterator[Record]]
    uses: tuple[str, ...]


def has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a record has all of these columns, with something in them."""
    return lambda record: all(record.get(name) is not None for name in names)


def message(role: str, content: str) -> Message:
    """One turn of a conversation."""
    return {"role": role, "content": content}


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float)
