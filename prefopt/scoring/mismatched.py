"""Each prompt with another prompt's response: from such pairs KTO estimates how far the policy has moved in general."""

from __future__ import annotations

import torch
from torch import Tensor

from prefopt.scoring.policy import Batch


def mismatched(batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
    """Every prompt followed by the first response of the next row that has another prompt, and which rows have one.

    Shapes: a batch `[B, R, L]` -> a batch `[B, 1, L']` in the same form, bool `[B]`. A row without a partner, as in a
    batch of one, keeps its own response.
    """
    partner, found = _partners(batch)
    ids, prompt = batch["input_ids"][:, 0], batch["prompt_lengths"]
    whole = prompt + (batch["attention_mask"][:, 0].sum(-1) - prompt).clamp(min=0)[partner]  # [B]
    place = torch.arange(int(whole.max()), device=ids.device).expand(len(ids), -1)  # [B, L']
    inside = place < prompt.unsqueeze(-1)
    own = ids.gather(1, place.clamp(max=ids.shape[1] - 1))
    shifted = (place + (prompt[partner] - prompt).unsqueeze(-1)).clamp(0, ids.shape[1] - 1)
    other = ids[partner].gather(1, shifted)
    changed = {
        "input_ids": torch.where(inside, own, other).unsqueeze(1),
        "attention_mask": (place < whole.clamp(min=1).unsqueeze(-1)).long().unsqueeze(1),
        "prompt_lengths": prompt,
        "mask": batch["mask"][partner, :1],
        "ids": batch["ids"],
    }
    return changed, found


def _partners(batch: Batch) -> tuple[Tensor, Tensor]:
    """For each row the next one with another prompt, `[B]`, and whether there is one."""
    prompt = batch["prompt_lengths"]
    count, device = len(prompt), prompt.device
    place = torch.arange(int(prompt.max()), device=device)
    ids = batch["input_ids"][:, 0, : len(place)].masked_fill(place >= prompt.unsqueeze(-1), -1)
    same = (ids.unsqueeze(0) == ids.unsqueeze(1)).all(-1)  # [B, B]
    rows = torch.arange(count, device=device)
    order = (rows.unsqueeze(1) + rows) % count  # row j: j, j + 1, ...
    differs = ~same.gather(1, order)
    first = differs.long().argmax(1)  # 0, itself, where none differs
    return order.gather(1, first.unsqueeze(1)).squeeze(1), differs.any(1)
