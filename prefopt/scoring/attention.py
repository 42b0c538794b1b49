"""How a model is told that the responses of a prompt stand in one row and do not see each other.

Eager, SDPA and flex attention take a mask of ours. With SDPA the prompts of a batch can also stand behind one another
in one row, so that no layer computes padding; attention then runs prompt by prompt, through `packed_attention`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from prefopt.errors import ConfigError
from prefopt.scoring.heads import causal_model
from prefopt.scoring.layout import Layout

FULL, SLIDING = "full_attention", "sliding_attention"
PACKED = "prefopt_packed"
"""Name of an attention that is SDPA, but computes the prompts of a packed row one by one."""


_OTHER_WINDOWS = ("window_size", "attention_window", "attention_window_size", "local_attention")
"""How configs other than those with `sliding_window` say that layers see a part only: GPT-Neo, RecurrentGemma, ..."""


def windows_of(model: nn.Module) -> dict[str, int | None]:
    """Attention window in positions by kind of layer, None where a layer sees everything.

    Raises: `ConfigError` for a model whose layers are told what to see in another way.
    """
    config = _config(model)
    how = config._attn_implementation
    if how not in ("sdpa", "eager", "flex_attention", PACKED):
        raise ConfigError(f"attention '{how}' takes no mask of its own making")
    if getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt"):
        raise ConfigError("its attention counts columns, not positions (ALiBi)")
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        local = [name for name in _OTHER_WINDOWS if getattr(config, name, None)]
        if local:
            raise ConfigError(f"its attention is local in a way prefopt does not know ({local[0]})")
        return {FULL: window if getattr(config, "use_sliding_window", True) else None}
    unknown = sorted(set(kinds) - {FULL, SLIDING})
    if unknown:
        raise ConfigError(f"it has layers of kind {', '.join(unknown)}")
    return {kind: window if kind == SLIDING else None for kind in sorted(set(kinds))}


def attention_inputs(model: nn.Module, layout: Layout) -> dict[str, Any]:
    """`attention_mask`, and with a shared prefix `position_ids`, in the form that the model takes."""
    if layout.segments is None:
        return {"attention_mask": layout.attention_mask}
    config, packed = _config(model), None if layout.pieces is None else Packed.of(layout)
    masks = {
        kind: _NOTHING_SLIDES.to(layout.input_ids.device)
        if packed is not None and (window is None or window >= layout.span)
        else _formed(layout, window, model)
        for kind, window in windows_of(model).items()
    }
    several = getattr(config, "layer_types", None) is not None
    inputs = {"attention_mask": masks if several else masks[FULL], "position_ids": layout.position_ids}
    return inputs if packed is None else inputs | {"packed": packed}


_NOTHING_SLIDES = torch.ones(1, 1, 1, 1, dtype=torch.bool)
"""Stands for the masks of a packed row in layers that see everything: models pass on a mask of four dimensions as it
is."""


@dataclass(frozen=True)
class Packed:
    """The prompts of a packed row: how long each is, followed by its responses, and how a response sees its own.

    `own` bool `[T, T]` is lower triangular, T tokens being the longest response.
    """

    pieces: tuple[tuple[int, ...], ...]
    own: Tensor

    @classmethod
    def of(cls, layout: Layout) -> Packed:
        """What attention needs to know of a packed layout."""
        assert layout.pieces is not None
        longest = max((length for row in layout.pieces for length in row[1:]), default=0)
        return cls(layout.pieces, torch.ones(longest, longest, dtype=torch.bool, device=layout.input_ids.device).tril())


def _config(model: nn.Module) -> Any:
    return causal_model(model).config.get_text_config()


def _formed(layout: Layout, window: int | None, model: nn.Module) -> Any:
    """A block mask for flex attention, additive for eager attention, boolean for SDPA."""
    how = _config(model)._attn_implementation
    if how == "flex_attention":
        return layout.block_mask(window)
    visible = layout.visible(window).unsqueeze(1)
    if how != "eager":
        return visible
    dtype = next(causal_model(model).parameters()).dtype
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, torch.finfo(dtype).min)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    packed: Packed | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """SDPA as transformers calls it; of a packed row, each prompt by itself.

    Shapes: query, key, value `[1, heads, sum of lengths, D]`; attention_mask bool `[N, 1, W, W]`, one per prompt, or
    `[1, 1, 1, 1]` where nothing slides.
    Raises: `ValueError` when a mask for several prompts comes without their lengths.
    """
    if packed is None:
        if attention_mask is not None and (
            len(attention_mask) > len(query) or attention_mask.shape[-1] < query.shape[-2]
        ):
            raise ValueError("its layers do not pass on how long the prompts of a packed row are")
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)  # type: ignore[no-any-return]
    assert attention_mask is not None
    found, lengths = [], [sum(pieces) for pieces in packed.pieces]
    rows = zip(*(states.split(lengths, dim=2) for states in (query, key, value)), strict=True)
    for n, (pieces, row) in enumerate(zip(packed.pieces, rows, strict=True)):
        if attention_mask.shape[-1] > 1:
            mask = attention_mask[n : n + 1, :, : lengths[n], : lengths[n]]
            found.append(sdpa_attention_forward(module, *row, mask, **options)[0])
        else:
            found += _prompt_then_responses(module, row, pieces, packed.own, options)
    return torch.cat(found, 1), None


def _prompt_then_responses(
    module: nn.Module, row: tuple[Tensor, ...], pieces: tuple[int, ...], own: Tensor, options: dict[str, Any]
) -> list[Tensor]:
    """The prompt sees itself; each response sees the prompt and itself, and no time goes into what it does not see."""
    options = {**options, "is_causal": None}
    queries, keys, values = (states.split(pieces, dim=2) for states in row)
    prompt = pieces[0]
    found = []
    if prompt:
        found.append(sdpa_attention_forward(module, queries[0], keys[0], values[0], None, **options)[0])
    for query, key, value in zip(queries[1:], keys[1:], values[1:], strict=True):
        length = query.shape[2]
        if length:
            seen = torch.cat([own.new_ones(length, prompt), own[:length, :length]], 1)[None, None]
            key, value = torch.cat([keys[0], key], 2), torch.cat([values[0], value], 2)
            found.append(sdpa_attention_forward(module, query, key, value, seen, **options)[0])
    return found


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, sdpa_mask)


def packs(model: nn.Module) -> bool:
    """Whether the model's attention computes packed rows prompt by prompt."""
    return bool(_config(model)._attn_implementation == PACKED)


def let_pack(model: nn.Module) -> None:
    """Give a model with SDPA attention the one that computes packed rows; whatever else it is asked runs as before.

    Raises: `ConfigError` for a model with another attention.
    """
    how = _config(model)._attn_implementation
    if how == PACKED:
        return
    if how != "sdpa":
        raise ConfigError(f"attention '{how}' does not compute packed rows")
    causal_model(model).set_attn_implementation(PACKED)
