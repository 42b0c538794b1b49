"""Log-probabilities of labels under a plain linear head, with the derivative written out.

For logits z = W h + b, log p(y) = z_y - log sum_v exp(z_v), so with an upstream derivative u per token

    d / dz = u (e_y - p),     d / dh = u (W_y - W' p),     d / dW = u (e_y - p) h'.

Autograd would keep one block of logits for each of gather, logsumexp and the product; here one block is turned into its
own derivative in place. The blocks are computed again in the backward pass, all but the last, which is still there. A
head that is not trained needs no second look: W_y - W' p is computed at once, `[N, H]`. All blocks of a call stand in
the same memory, which on CPUs serves later calls too, in the dtype of the product: in a lower precision float32 logits
are there for a few rows at a time, which caches hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.autograd.function import once_differentiable
from torch.distributed.fsdp import FSDPModule

from prefopt.scoring.chunked import whole_parts
from prefopt.scoring.heads import Head


def is_plain(head: Head) -> bool:
    """Whether the head's weight is the whole of it: no adapter, no quantization. Hooks run around what we compute."""
    kind = type(head.module)
    linear = kind is nn.Linear or (issubclass(kind, FSDPModule) and kind.__mro__[2] is nn.Linear)
    weight = head.module.weight
    stored = type(weight) in (nn.Parameter, FakeTensor)  # a fake one stands for a parameter
    return linear and stored and weight.dim() == 2  # type: ignore[operator]


def fused_logps(hidden: Tensor, labels: Tensor, head: Head, *, chunk: int) -> Tensor:
    """log p(label | hidden) in nats, float32 or wider: hidden `[N, H]`, labels `[N]` -> `[N]`.

    The `head` must be plain. `chunk` is in tokens: no more than one `[chunk, V]` block exists.
    """
    kind = hidden.device.type
    cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else head.module.weight.dtype
    parts = whole_parts(len(labels), chunk)
    how = _How(parts, head.scale, head.cap, cast, torch.is_grad_enabled())  # type: ignore[arg-type]
    with torch.autocast(kind, enabled=False):
        return _TokenLogps.apply(hidden, head.module.weight, head.module.bias, labels, how)  # type: ignore[no-any-return]


def trl_logps(hidden: Tensor, labels: Tensor, head: Head, *, budget: int = 128 * 2**20) -> Tensor:
    """The same by TRL's function, whose tiles a Triton kernel folds on CUDA: `[N, H]`, `[N]` -> `[N]`."""
    from trl.kernels import ChunkedLogProbFunction

    columns = max(budget // (4 * 4096), 1)  # TRL takes 4,096 tokens at a time
    module, cap = head.module, head.cap
    found = ChunkedLogProbFunction.apply(hidden, module.weight, module.bias, labels, 1.0, columns, cap, head.scale, ())
    logps: Tensor = found[0]
    return logps


_PIECE = 4 * 2**20  # bytes of what is computed and read again at once: as much as caches hold


@dataclass(frozen=True)
class _How:
    parts: list[slice]
    scale: float
    cap: float | None
    dtype: torch.dtype
    learns: bool  # whether a backward pass can follow: a context says what it would need even where none can

    def logits(self, product: Tensor) -> Tensor:
        """Logits of rows of W h + b, float32 or wider; the rows themselves where nothing is done to them."""
        logits = product.to(torch.promote_types(self.dtype, torch.float32))
        if self.scale != 1:
            logits = logits * self.scale
        return logits if self.cap is None else (logits / self.cap).tanh_().mul_(self.cap)

    @property
    def leaves_shares(self) -> bool:
        """Whether a block holds the shares p once it was read: it has room for them, and nothing else is needed."""
        return self.dtype.itemsize >= 4 and self.cap is None

    def read(self, product: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The labels' log-probabilities and log sum_v exp(z_v), `[n]` each, from a block of W h + b."""
        found, norms = [], []
        for rows in _in_cache(product):
            logits = self.logits(product[rows])
            top, label = logits.amax(-1), logits.gather(-1, labels[rows].unsqueeze(-1)).squeeze(-1)
            powers = torch.sub(logits, top.unsqueeze(-1), out=product[rows] if self.leaves_shares else None).exp_()
            sums = powers.sum(-1)
            norms.append(top + sums.log())
            found.append(label - norms[-1])
            if self.leaves_shares and self.learns:
                powers.mul_(1 / sums.unsqueeze(-1))
        return torch.cat(found), torch.cat(norms)

    def turn_to_slopes(self, block: Tensor, labels: Tensor, norms: Tensor | None, u: Tensor) -> Tensor:
        """W h + b, or the shares p where no `norms` are given, becomes u d log p(label) / d (W h + b) in its place."""
        for rows in _in_cache(block):
            part, weight, bend = block[rows], u[rows].unsqueeze(-1), None
            if norms is None:
                shares = part
            else:
                logits = self.logits(part)
                bend = None if self.cap is None else 1 - (logits / self.cap).square()
                shares = logits.sub_(norms[rows].unsqueeze(-1)).exp_()
            slope = shares.mul_(-weight).scatter_add_(-1, labels[rows].unsqueeze(-1), weight)
            if bend is not None:
                slope.mul_(bend)
            if self.scale != 1:
                slope.mul_(self.scale)
            if slope is not part:
                part.copy_(slope)
        return block


def _in_cache(product: Tensor) -> list[slice]:
    """Rows of a block whose logits in float32 stay where the processor reads them again at once."""
    budget = _PIECE if product.device.type == "cpu" else 8 * _PIECE
    return whole_parts(len(product), max(budget // (4 * product.shape[1]), 1))


class _Room:
    """Memory for the blocks of one call, one at a time.

    On a CPU it is kept for the calls to come: to fill fresh pages costs a quarter of the product that fills them.
    """

    _spare: ClassVar[dict[torch.dtype, Tensor]] = {}

    def __init__(self, rows: int, weight: Tensor) -> None:
        kept = weight.device.type == "cpu" and type(weight) is Tensor  # no fake memory, of an estimate
        kept = kept and not torch.is_inference_mode_enabled()  # what is made there cannot be written to elsewhere
        spare = self._spare.pop(weight.dtype, None) if kept else None
        if spare is None or spare.numel() < rows * len(weight):
            spare = torch.empty(rows * len(weight), dtype=weight.dtype, device=weight.device)
        self._memory, self._kept = spare, kept

    def product(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """W h + b, `[n, V]`, in place of the block before."""
        block = self._memory[: len(hidden) * len(weight)].view(len(hidden), len(weight))
        if bias is None:
            return torch.mm(hidden, weight.t(), out=block)
        return torch.addmm(bias, hidden, weight.t(), out=block)

    def leave(self) -> None:
        """No block is needed any more."""
        if self._kept:
            self._spare[self._memory.dtype] = self._memory


class _TokenLogps(torch.autograd.Function):
    """hidden `[N, H]`, weight `[V, H]`, bias `[V]` or None, labels `[N]` -> `[N]`."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, how: _How) -> Tensor:
        trained = how.learns and (ctx.needs_input_grad[1] or (bias is not None and ctx.needs_input_grad[2]))
        sloped = how.learns and ctx.needs_input_grad[0] and not trained
        h, w = hidden.to(how.dtype), weight.detach().to(how.dtype)
        b = None if bias is None else bias.to(how.dtype)
        room = _Room(max(part.stop - part.start for part in how.parts), w)
        found, norms, slopes = [], [], []
        for part in how.parts:
            product = room.product(h[part], w, b)
            logps, sums = how.read(product, labels[part])
            found.append(logps)
            norms.append(sums)
            if sloped:
                known = None if how.leaves_shares else sums
                slopes.append(how.turn_to_slopes(product, labels[part], known, torch.ones_like(sums)) @ w)
        ctx.how, ctx.room, ctx.kept = how, room, product if trained else None
        if not trained:
            room.leave()
            ctx.room = None
        ctx.save_for_backward(hidden, weight, bias, labels, torch.cat(norms), torch.cat(slopes) if sloped else None)
        return torch.cat(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, labels, norms, slopes = ctx.saved_tensors
        how: _How = ctx.how
        if slopes is not None:
            return (slopes * upstream.unsqueeze(-1)).to(hidden.dtype), None, None, None, None
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        h, w = hidden.to(how.dtype), weight.to(how.dtype)
        b = None if bias is None else bias.to(how.dtype)
        room = ctx.room or _Room(max(part.stop - part.start for part in how.parts), w)  # another one the second time
        to_hidden = torch.empty_like(hidden) if wants_hidden else None
        to_weight = None
        to_bias = torch.zeros_like(bias) if bias is not None and wants_bias else None
        for part in reversed(how.parts):
            block, ctx.kept = ctx.kept, None
            known = None if block is not None and how.leaves_shares else norms[part]
            if block is None:
                block = room.product(h[part], w, b)
            slope = how.turn_to_slopes(block, labels[part], known, upstream[part])
            if to_hidden is not None:
                to_hidden[part] = slope @ w
            if wants_weight:
                to_weight = _add_product(to_weight, slope.t(), h[part], weight.dtype)
            if to_bias is not None:
                to_bias += slope.sum(0)
        room.leave()
        ctx.room = None
        return to_hidden, to_weight, to_bias, None, None


def _add_product(total: Tensor | None, one: Tensor, other: Tensor, dtype: torch.dtype) -> Tensor:
    """total + one @ other, of `dtype`, without a second block of its size."""
    if dtype == one.dtype:
        return one @ other if total is None else total.addmm_(one, other)
    if total is None:
        total = one.new_zeros(one.shape[0], other.shape[1], dtype=dtype)
    for rows in whole_parts(len(total), max(_PIECE // (other.shape[1] * one.element_size()), 1)):
        total[rows] += one[rows] @ other
    return total
