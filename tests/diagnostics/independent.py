"""The scores of a pair computed for clarity: one forward pass per response, every hidden state kept, loops, float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


@torch.no_grad()
def used_states(model: Any, prompt: Sequence[int], response: Sequence[int], mask: Sequence[bool]) -> list[Tensor]:
    """The states that predict the scored tokens of one response."""
    ids = torch.tensor([[*prompt, *response]])
    hidden = model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0].double()
    return [hidden[len(prompt) + place - 1] for place in range(len(response)) if mask[place]]


def scores_of(model: Any, row: dict[str, Any], rejected: int = 1) -> dict[str, float]:
    """All four scores of a row's chosen response and one of the others, from their definitions."""
    plus, minus = (used_states(model, row["prompt_ids"], row["responses"][r], row["masks"][r]) for r in (0, rejected))
    total_plus, total_minus = sum(plus), sum(minus)
    mean_plus, mean_minus = total_plus / len(plus), total_minus / len(minus)
    return {
        "ches": float(total_plus @ total_minus - total_plus @ total_plus),
        "ln_ches": float(mean_plus @ mean_minus - mean_plus @ mean_plus),
        "cosine": float(mean_plus @ mean_minus / (mean_plus.norm() * mean_minus.norm())),
        "last_inner_product": float(plus[-1] @ minus[-1]),
    }


@torch.no_grad()
def logps_of(model: Any, prompt: Sequence[int], response: Sequence[int]) -> Tensor:
    """Log-probability of each token of one response."""
    ids = torch.tensor([[*prompt, *response]])
    logps = model(input_ids=ids).logits[0].double().log_softmax(-1)
    return torch.stack([logps[len(prompt) + place - 1, token] for place, token in enumerate(response)])


@torch.no_grad()
def next_probabilities(model: Any, ids: Sequence[int]) -> Tensor:
    """Next-token probabilities behind some ids."""
    probabilities: Tensor = model(input_ids=torch.tensor([list(ids)])).logits[0, -1].double().softmax(-1)
    return probabilities
