"""Generate answers to rendered prompts, in batches, without touching training's random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from prefopt.scoring.heads import causal_model
from prefopt.scoring.reference import evaluating


@torch.no_grad()
def generate(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    prompt_ids: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    samples: int = 1,
    seed: int = 0,
    batch_size: int = 64,
) -> list[list[str]]:
    """`samples` decoded answers per prompt, without special tokens. Greedy at temperature 0.

    Prompts of similar length stand together. Greedy answers do not depend on `batch_size`; sampled ones are fixed by
    `seed` and `batch_size`.
    """
    order = sorted(range(len(prompt_ids)), key=lambda i: len(prompt_ids[i]))
    answers: list[list[str]] = [[] for _ in prompt_ids]
    device = next(model.parameters()).device
    stops = stop_tokens(model, tokenizer)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else stops[0] if stops else 0
    sampling = (
        {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        if temperature > 0
        else {"do_sample": False}
    )
    with evaluating(model), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            ids, mask = left_padded([prompt_ids[i] for i in chosen], pad, device)
            out = _generator(model).generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=max_new_tokens,
                num_return_sequences=samples if temperature > 0 else 1,
                eos_token_id=stops or None,
                pad_token_id=pad,
                use_cache=True,
                **sampling,
            )
            texts = tokenizer.batch_decode(out[:, ids.shape[1] :], skip_special_tokens=True)
            each = len(texts) // len(chosen)
            for place, index in enumerate(chosen):
                found = texts[place * each : (place + 1) * each]
                answers[index] = found if len(found) == samples else found * samples
    return answers


def _generator(model: nn.Module) -> Any:
    # a PEFT model generates with its adapter on; other wrappers do not generate
    return model if hasattr(model, "generate") else causal_model(model)


def stop_tokens(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Every id that ends an answer, by tokenizer and by generation config."""
    config = getattr(causal_model(model), "generation_config", None)
    ours = config.eos_token_id if config is not None else None
    found = [tokenizer.eos_token_id, *(ours if isinstance(ours, list) else [ours])]
    return sorted({int(token) for token in found if token is not None})


def left_padded(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and attention mask [B, L] of rows that all end at the last column."""
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    return ids, mask
