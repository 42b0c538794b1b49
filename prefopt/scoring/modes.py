"""Evaluation mode for a while, or for good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from prefopt.scoring.heads import causal_model


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """The models in evaluation mode inside the block, then as they were."""
    training = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for model, was in zip(models, training, strict=True):
            model.train(was)


def freeze(model: nn.Module) -> nn.Module:
    """Evaluation mode and no gradients."""
    model.requires_grad_(False)
    return model.eval()


@torch.no_grad()
def stored_for_autocast(model: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """A frozen model with the weights of its linear layers in the dtype that autocast would cast them to anyway.

    It says the same, bit for bit, in half the memory; a model that does not is left as it was.
    """
    linear = [m for m in model.modules() if type(m) is nn.Linear and m.weight.dtype == torch.float32]
    embedded = causal_model(model).get_input_embeddings().weight
    linear = [module for module in linear if module.weight is not embedded]
    if dtype is None or not linear:
        return model
    device = linear[0].weight.device
    ids = torch.arange(1, 9, device=device).remainder(len(embedded)).unsqueeze(0)

    def said() -> torch.Tensor:
        with torch.autocast(device.type, dtype=dtype):
            return model(input_ids=ids, use_cache=False).logits  # type: ignore[no-any-return]

    before, weights = said(), [module.weight.data for module in linear]
    for module in linear:
        module.weight.data = module.weight.data.to(dtype)
    if not torch.equal(said(), before):
        for module, weight in zip(linear, weights, strict=True):
            module.weight.data = weight
    return model
