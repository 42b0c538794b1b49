"""A row of token ids before it has an id and a place in a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prefopt.data import rows
from prefopt.data.rejection import RejectedError


@dataclass(frozen=True)
class EncodedRow:
    """A row before it has an id. Fields as in `rows.Row`.

    `tokens` holds the columns of `rows.PER_TOKEN` that the row has, `values` those of `rows.PER_RESPONSE`. `ends[r]` is
    the token that ends response r when it is cut and closed again, None when it is open. `notes` are those of
    `rows.NOTES`. `moved` is the number of characters that left the prompt with a token that spans prompt and response.
    """

    prompt_ids: list[int]
    responses: list[list[int]]
    masks: list[list[bool]]
    ends: list[int | None]
    tokens: Mapping[str, list[list[Any]]] = field(default_factory=dict)
    values: Mapping[str, list[Any]] = field(default_factory=dict)
    label: bool | None = None
    answer: str | None = None
    notes: tuple[str, ...] = ()
    moved: int = 0

    @property
    def steps(self) -> list[list[int]] | None:
        """Step of each token, when the row has them."""
        return self.tokens.get(rows.STEPS)

    @property
    def external(self) -> list[float] | None:
        """Score of each response, when the row has them."""
        return self.values.get(rows.EXTERNAL)

    @property
    def length(self) -> int:
        """Tokens of the prompt and the longest response."""
        return len(self.prompt_ids) + max(map(len, self.responses))

    def noted(self, *notes: str) -> EncodedRow:
        """The row with further notes."""
        return replace(self, notes=(*self.notes, *notes))

    def distinct(self, reason: str) -> EncodedRow:
        """The row without rejected responses that equal the chosen one or another.

        Raises: `RejectedError` with `reason` when none is left.
        """
        keep: list[int] = []
        for r, ids in enumerate(self.responses):
            if ids not in [self.responses[k] for k in keep]:
                keep.append(r)
        if len(keep) == len(self.responses):
            return self
        if len(keep) == 1:
            raise RejectedError(reason, rows.REASONS[reason])
        return replace(
            self,
            responses=[self.responses[r] for r in keep],
            masks=[self.masks[r] for r in keep],
            ends=[self.ends[r] for r in keep],
            tokens={name: [values[r] for r in keep] for name, values in self.tokens.items()},
            values={name: [values[r] for r in keep] for name, values in self.values.items()},
        ).noted(rows.NEGATIVES_DROPPED)
