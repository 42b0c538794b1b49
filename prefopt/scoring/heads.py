"""What stands between a causal model's last hidden states and its logits.

The chunked backend projects hidden states itself, so it must know the head exactly: weight, bias, scale, soft cap. What
a model's config declares is read here; `verify_head` then compares with the model's own logits, so that an unknown kind
of head is refused instead of silently scored wrongly.

What is computed from a head's weight runs in place of the head's forward (`in_place_of`). Whoever shares weights out
over devices (FSDP, ZeRO 3) gathers those of a module for its forward and its backward, and so for ours.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from prefopt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Head:
    """logits = softcap(scale * (hidden @ weight.T + bias)), with softcap(z) = cap * tanh(z / cap)."""

    module: nn.Module
    scale: float = 1.0
    cap: float | None = None

    @property
    def vocabulary(self) -> int:
        """The number of logits of a token."""
        return int(getattr(self.module, "out_features", None) or len(self.module.weight))  # type: ignore[arg-type]

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits in float32 or wider, `[..., H] -> [..., V]`."""
        # through the module, not its weight: adapters on the head act, and autocast decides the precision of the
        # product; not through its hooks, which gather and release weights and have run where this is part of a forward
        return self.finished(self.module.forward(hidden))

    def finished(self, logits: Tensor) -> Tensor:
        """What the model makes of the head's own output `[..., V]`."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.scale != 1.0:
            logits = logits * self.scale
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


def causal_model(model: nn.Module) -> Any:
    """The `PreTrainedModel` inside wrappers (DistributedDataParallel, PEFT, torch.compile)."""
    inner: Any = model
    while True:
        if isinstance(inner, nn.parallel.DistributedDataParallel):
            inner = inner.module
        elif "_orig_mod" in inner._modules:
            inner = inner._modules["_orig_mod"]
        elif hasattr(inner, "peft_config") and hasattr(inner, "get_base_model"):
            inner = inner.get_base_model()
        elif type(inner).__name__ == "DeepSpeedEngine":
            inner = inner.module
        else:
            return inner


def sharded(model: nn.Module) -> bool:
    """Whether each device holds a part of the weights only (FSDP 2, ZeRO 3), so that all must run what one runs."""
    return any(isinstance(p, DTensor) or hasattr(p, "ds_id") for p in model.parameters())


def keeps_logits(model: nn.Module) -> bool:
    """Whether the model's forward takes `logits_to_keep`, so that positions nobody scores need no projection."""
    return takes(model, "logits_to_keep")


def takes(model: nn.Module, argument: str) -> bool:
    """Whether the model's forward has an argument of that name."""
    return argument in inspect.signature(causal_model(model).forward).parameters


@dataclass(frozen=True)
class Following:
    """A rotary embedding that follows the longest row of a batch beyond `limit` tokens; as text, a sentence's begin."""

    model: str
    kind: str
    limit: int

    def __str__(self) -> str:
        return (
            f"{self.model}'s rotary embedding ({self.kind}) follows the longest row of a batch beyond {self.limit:,} "
            "tokens"
        )


def following(model: nn.Module) -> Following | None:
    """Whether, and from where, the model's values depend on the other rows of a batch."""
    inner = causal_model(model)
    config: Any = getattr(inner, "config", None)
    if not hasattr(config, "get_text_config"):
        return None
    config = config.get_text_config()
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    for rope in [found, *(value for value in found.values() if isinstance(value, dict))]:
        kind = rope.get("rope_type", rope.get("type"))
        if kind not in ("dynamic", "longrope"):
            continue
        name = "original_max_position_embeddings"
        limit = rope.get(name) or getattr(config, name, None) or config.max_position_embeddings
        return Following(type(inner).__name__, kind, limit)
    return None


def find_head(model: nn.Module) -> Head:
    """The model's head with the scale and soft cap that its config declares.

    Raises: `ConfigError` for a model without output embeddings or without a decoder body of its own.
    """
    inner = causal_model(model)
    head = inner.get_output_embeddings() if hasattr(inner, "get_output_embeddings") else None
    if head is None or _body(inner) is None or not keeps_logits(model):
        raise ConfigError(
            f"{type(inner).__name__} has no head that can be projected in chunks; use scoring.backend: plain."
        )
    config = inner.config.get_text_config() if hasattr(inner.config, "get_text_config") else inner.config
    scale = 1.0
    if getattr(config, "logit_scale", None):  # Cohere
        scale *= config.logit_scale
    if getattr(config, "logits_scaling", None):  # Granite
        scale /= config.logits_scaling
    if getattr(config, "lm_head_multiplier", None):  # Falcon-H1
        scale *= config.lm_head_multiplier
    # Gemma, RecurrentGemma, xLSTM
    caps = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
    return Head(head, scale=scale, cap=next((cap for name in caps if (cap := getattr(config, name, None))), None))


def _body(inner: Any) -> nn.Module | None:
    body = getattr(inner, "model", None)
    if body is None and hasattr(inner, "base_model_prefix"):
        body = getattr(inner, inner.base_model_prefix, None)
    return body if isinstance(body, nn.Module) and body is not inner else None


@contextmanager
def last_hidden_states(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collects the last hidden states `[N, L, H]` of each forward pass of `model` that runs inside the block."""
    collected: list[Tensor] = []
    body = _body(causal_model(model))
    assert body is not None  # find_head refused such a model

    def keep(_module: nn.Module, _args: Any, output: Any) -> None:
        collected.append(output[0] if isinstance(output, tuple) else output.last_hidden_state)

    handle = body.register_forward_hook(keep)
    try:
        yield collected
    finally:
        handle.remove()


@contextmanager
def in_place_of(module: nn.Module, compute: Callable[[Tensor], Tensor]) -> Iterator[list[Tensor]]:
    """Inside the block, the module's next call computes this of its input, and what comes out of it is collected."""
    collected: list[Tensor] = []
    own = vars(module).get("forward")

    def restore() -> None:
        vars(module).pop("forward", None)
        if own is not None:
            module.forward = own

    def once(hidden: Tensor) -> Tensor:
        restore()
        return compute(hidden)

    # behind the hooks of others: one that brings weights back in the backward pass may hang itself on its own tensor
    handle = module.register_forward_hook(lambda _module, _args, output: collected.append(output))
    module.forward = once
    try:
        yield collected
    finally:
        handle.remove()
        restore()


@torch.no_grad()
def verify_head(model: nn.Module, head: Head, *, tolerance: float | None = None) -> None:
    """Compare what should come of the head's output on a few token ids with the model's own logits.

    `tolerance` is 1e-3 unless given, and some roundings where the model makes its logits in a lower precision, in
    which it scales and caps them too.
    Raises: `ConfigError` when they differ by more than `tolerance` relative to the largest logit.
    """
    asked = model if sharded(model) else causal_model(model)  # not through wrappers: other ranks do not wait
    device = next(model.parameters()).device
    ids = torch.arange(1, 9, device=device).remainder(head.vocabulary).unsqueeze(0)
    said: list[Tensor] = []

    def listen(_module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        # where weights are shared out they may be gone by now
        said.append(head.finished(output) if sharded(model) else head.logits(args[0]))

    handle = head.module.register_forward_hook(listen)
    try:
        logits = asked(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    finally:
        handle.remove()
    own, tolerance = logits.float(), max(1e-3, 2 * torch.finfo(logits.dtype).eps) if tolerance is None else tolerance
    gap = (own - said[-1].float()).abs().max() / own.abs().max().clamp(min=1e-6)
    if not gap <= tolerance:
        raise ConfigError(
            f"{type(causal_model(model)).__name__} changes its logits after the head in a way prefopt does not know "
            f"(relative difference {gap:.2g}); use scoring.backend: plain."
        )
