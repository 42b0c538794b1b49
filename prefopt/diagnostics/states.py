"""Hidden states of a batch's responses, summed as they are computed: one vector per response is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from prefopt.data.collate import Collator
from prefopt.diagnostics.items import Batch, Item
from prefopt.diagnostics.similarity import StateSums
from prefopt.scoring.attention import attention_inputs
from prefopt.scoring.heads import keeps_logits, last_hidden_states
from prefopt.scoring.layout import Layout
from prefopt.scoring.policy import Scorer


@dataclass(frozen=True)
class StateReader:
    """Reads the sums of a model's hidden states over responses, without its head."""

    model: nn.Module
    scorer: Scorer = field(default_factory=Scorer)

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device

    @torch.no_grad()
    def __call__(self, batch: Batch) -> list[StateSums]:
        """For each item the sums `[R, H]` of its responses, on the CPU; a response without scored tokens has count 0.

        What all responses of an item begin with is read once, as if it belonged to the prompt.
        """
        shared = [item.shared_beginning() for item in batch]
        laid = collated([item.row(shared=count) for item, count in zip(batch, shared, strict=True)], self.device)
        layout = self.scorer.laid_out(self.model, laid)
        hidden = self._hidden(layout)
        suffixes = hidden[layout.rows, layout.columns].split(_counts(batch, shared))  # [n_r, H] of each response
        places = iter(suffixes)
        firsts = _first_places(layout)
        found = []
        for number, (item, count) in enumerate(zip(batch, shared, strict=True)):
            before = _before(hidden, item, count, *firsts.get(number, (0, 0)))
            found.append(_summed([torch.cat([before, next(places)]) for _ in item.responses]))
        return found

    def _hidden(self, layout: Layout) -> Tensor:
        """States after the final norm, `[N, W, H]`."""
        options: dict[str, Any] = {}
        if keeps_logits(self.model):
            options["logits_to_keep"] = torch.empty(0, dtype=torch.long, device=layout.input_ids.device)
        with last_hidden_states(self.model) as hidden:
            seen = attention_inputs(self.model, layout)
            self.model(input_ids=layout.input_ids, use_cache=False, **seen, **options)
        return hidden[-1]


def collated(lines: Sequence[dict[str, Any]], device: torch.device) -> dict[str, Tensor]:
    """Rows as a batch on the model's device. Padding is masked, so that its id does not matter."""
    return {name: value.to(device) for name, value in Collator()(lines).items()}


def _counts(batch: Batch, shared: Sequence[int]) -> list[int]:
    """Scored tokens of each response behind what all have in common, in the order of the batch."""
    return [sum(mask[count:]) for item, count in zip(batch, shared, strict=True) for mask in item.masks]


def _first_places(layout: Layout) -> dict[int, tuple[int, int]]:
    """The model's row and column in which each item's prompt begins, for items with a scored token."""
    if layout.pieces is not None:  # one behind the other in one row
        lengths = [sum(piece) for piece in layout.pieces]
        return {b: (0, end - length) for b, (end, length) in enumerate(zip(accumulate(lengths), lengths, strict=True))}
    found: dict[int, tuple[int, int]] = {}
    for b, row in zip(layout.mask.nonzero()[:, 0].tolist(), layout.rows.tolist(), strict=True):
        found.setdefault(b, (row, 0))
    return found


def _before(hidden: Tensor, item: Item, shared: int, row: int, column: int) -> Tensor:
    """States that predict the scored tokens among the first `shared` of every response, `[n, H]`."""
    scored = [place for place in range(shared) if item.masks[0][place]]
    columns = torch.tensor([column + len(item.prompt) + place - 1 for place in scored], device=hidden.device).long()
    return hidden[row, columns]


def _summed(states: list[Tensor]) -> StateSums:
    """Sums in float32 or wider over each response's states; over the same numbers in the same order in any batch."""
    wide = [part if part.dtype == torch.float64 else part.float() for part in states]
    last = [part[-1] if len(part) else part.new_zeros(part.shape[-1]) for part in wide]
    return StateSums(
        sums=torch.stack([part.sum(0) for part in wide]).cpu(),
        counts=torch.tensor([len(part) for part in wide]),
        last=torch.stack(last).cpu(),
    )
