"""How a model is told that the responses of a prompt stand in one row and do not see each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from prefopt.errors import ConfigError
from prefopt.scoring.heads import causal_model
from prefopt.scoring.layout import Layout

FULL, SLIDING = "full_attention", "sliding_attention"


def windows_of(model: nn.Module) -> dict[str, int | None]:
    """Attention window in positions by kind of layer, None where a layer sees everything.

    Raises: `ConfigError` for a model whose layers are told what to see in another way.
    """
    inner = causal_model(model)
    config = inner.config.get_text_config()
    how = getattr(config, "_attn_implementation", None)
    if how not in ("sdpa", "eager"):
        raise ConfigError(f"attention '{how}' takes no mask of its own making")
    if getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt"):
        raise ConfigError("its attention counts columns, not positions (ALiBi)")
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return {FULL: window if getattr(config, "use_sliding_window", True) else None}
    unknown = sorted(set(kinds) - {FULL, SLIDING})
    if unknown:
        raise ConfigError(f"it has layers of kind {', '.join(unknown)}")
    return {kind: window if kind == SLIDING else None for kind in sorted(set(kinds))}


def attention_inputs(model: nn.Module, layout: Layout) -> dict[str, Any]:
    """`attention_mask`, and with a shared prefix `position_ids`, in the form that the model takes."""
    if layout.segments is None:
        return {"attention_mask": layout.attention_mask}
    config = causal_model(model).config.get_text_config()
    masks = {
        kind: _formed(layout.visible(window).unsqueeze(1), model, config._attn_implementation)
        for kind, window in windows_of(model).items()
    }
    several = getattr(config, "layer_types", None) is not None
    return {"attention_mask": masks if several else masks[FULL], "position_ids": layout.positions}


def _formed(visible: Tensor, model: nn.Module, how: str) -> Tensor:
    """Boolean for SDPA, additive for eager attention."""
    if how == "sdpa":
        return visible
    dtype = next(causal_model(model).parameters()).dtype
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, torch.finfo(dtype).min)
