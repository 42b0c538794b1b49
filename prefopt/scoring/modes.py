"""Evaluation mode for a while, or for good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


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
