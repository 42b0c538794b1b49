"""Log-probabilities of labels under a plain linear head, with the derivative written out.

For logits z = W h + b, log p(y) = z_y - log sum_v exp(z_v), so with an upstream derivative u per token

    d / dz = u (e_y - p),     d / dh = u (W_y - W' p),     d / dW = u (e_y - p) h'.

Autograd would keep one block of logits for each of gather, logsumexp and the product; here one block is turned into its
own derivative in place. The blocks are computed again in the backward pass, all but the last, which is still there. A
head that is not trained needs no second look: W_y - W' p is computed at once, `[N, H]`. All blocks of a call stand in
the same memory, which on CPUs serves later calls too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.autograd.function import once_differentiable
from torch.distributed.fsdp import FSDPModule

from prefopt.scoring.chunked import even_parts
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

    The `head` must be plain. `chunk` is in tokens: no more than one `[chunk, V]` block exists, two where a soft cap is.
    """
    kind = hidden.device.type
    cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else head.module.weight.dtype
    parts = even_parts(len(labels), chunk)
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


@dataclass(frozen=True)
class _How:
    parts: list[slice]
    scale: float
    cap: float | None
    dtype: torch.dtype
    learns: bool  # whether a backward pass can follow: a context says what it would need even where none can

    def logits(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, rooms: _Rooms) -> Tensor:
        """A block `[n, V]`, float32 or wider, in place of the one before."""
        product = rooms.block(len(hidden), self.dtype)
        if bias is None:
            torch.mm(hidden, weight.t(), out=product)
        else:
            torch.addmm(bias, hidden, weight.t(), out=product)
        block = rooms.cast(product, torch.promote_types(self.dtype, torch.float32))
        if self.scale != 1:
            block.mul_(self.scale)
        return block if self.cap is None else block.div_(self.cap).tanh_().mul_(self.cap)

    def bend(self, block: Tensor) -> Tensor | None:
        """d softcap(x) / dx at the logits, None without a cap."""
        return None if self.cap is None else 1 - (block / self.cap).square()

    def slope(
        self, powers: Tensor, sums: Tensor | None, labels: Tensor, u: Tensor, bend: Tensor | None, rooms: _Rooms
    ) -> Tensor:
        """u d log p(label) / d (W h + b), in place of e^z, whose sums over the vocabulary are given or 1."""
        shares = -u if sums is None else -u / sums
        out = powers.mul_(shares.unsqueeze(-1)).scatter_add_(-1, labels.unsqueeze(-1), u.unsqueeze(-1))
        if bend is not None:
            out.mul_(bend)
        return rooms.cast(out.mul_(self.scale) if self.scale != 1 else out, self.dtype)


class _Rooms:
    """Memory for the blocks of one call, one block of each dtype at a time.

    On a CPU it is kept for the calls to come: to fill fresh pages costs a quarter of the product that fills them.
    """

    _spare: ClassVar[dict[torch.dtype, Tensor]] = {}

    def __init__(self, rows: int, columns: int, like: Tensor) -> None:
        self._size, self._columns, self._device = rows * columns, columns, like.device
        self._kept = self._device.type == "cpu" and type(like) is Tensor  # no fake memory, of an estimate
        self._held: dict[torch.dtype, Tensor] = {}

    def block(self, rows: int, dtype: torch.dtype) -> Tensor:
        """Room `[rows, V]` for a block; what the last block of this dtype held is lost."""
        if dtype not in self._held:
            spare = self._spare.pop(dtype, None) if self._kept else None
            if spare is None or spare.numel() < self._size:
                spare = torch.empty(self._size, dtype=dtype, device=self._device)
            self._held[dtype] = spare
        return self._held[dtype][: rows * self._columns].view(rows, self._columns)

    def cast(self, block: Tensor, dtype: torch.dtype) -> Tensor:
        """The block in this dtype."""
        return block if block.dtype == dtype else self.block(len(block), dtype).copy_(block)

    def leave(self) -> None:
        """No block is needed any more."""
        if self._kept:
            self._spare.update(self._held)
        self._held = {}


class _TokenLogps(torch.autograd.Function):
    """hidden `[N, H]`, weight `[V, H]`, bias `[V]` or None, labels `[N]` -> `[N]`."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, how: _How) -> Tensor:
        trained = how.learns and (ctx.needs_input_grad[1] or (bias is not None and ctx.needs_input_grad[2]))
        sloped = how.learns and ctx.needs_input_grad[0] and not trained
        h, w = hidden.to(how.dtype), weight.to(how.dtype)
        b = None if bias is None else bias.to(how.dtype)
        rooms = _Rooms(max(part.stop - part.start for part in how.parts), len(weight), h)
        found, norms, slopes = [], [], []
        kept: tuple[Tensor, Tensor, Tensor | None] | None = None
        for part in how.parts:
            block, names = how.logits(h[part], w, b, rooms), labels[part]
            label, top = block.gather(-1, names.unsqueeze(-1)).squeeze(-1), block.amax(-1)
            last = trained and part is how.parts[-1]
            bend = how.bend(block) if last or sloped else None
            sums = block.sub_(top.unsqueeze(-1)).exp_().sum(-1)
            norms.append(top + sums.log())
            found.append(label - norms[-1])
            if last:
                kept = (block, sums, bend)
            elif sloped:
                slopes.append(how.slope(block, sums, names, torch.ones_like(sums), bend, rooms) @ w)
        if not trained:
            rooms.leave()
        ctx.how, ctx.kept, ctx.rooms = how, kept, rooms
        ctx.save_for_backward(hidden, weight, bias, labels, torch.cat(norms), torch.cat(slopes) if sloped else None)
        return torch.cat(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, labels, norms, slopes = ctx.saved_tensors
        how: _How = ctx.how
        rooms: _Rooms = ctx.rooms
        if slopes is not None:
            return (slopes * upstream.unsqueeze(-1)).to(hidden.dtype), None, None, None, None
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        h, w = hidden.to(how.dtype), weight.to(how.dtype)
        b = None if bias is None else bias.to(how.dtype)
        to_hidden = torch.empty_like(hidden) if wants_hidden else None
        to_weight = None
        to_bias = torch.zeros_like(bias) if bias is not None and wants_bias else None
        for part in reversed(how.parts):
            u, names = upstream[part], labels[part]
            if ctx.kept is not None:
                (block, sums, bend), ctx.kept = ctx.kept, None
            else:
                block = how.logits(h[part], w, b, rooms)
                sums, bend = None, how.bend(block)
                block.sub_(norms[part].unsqueeze(-1)).exp_()
            slope = how.slope(block, sums, names, u, bend, rooms)
            if to_hidden is not None:
                to_hidden[part] = slope @ w
            if wants_weight:
                to_weight = _add_product(to_weight, slope.t(), h[part], weight.dtype)
            if to_bias is not None:
                to_bias += slope.sum(0)
            del slope, block
        rooms.leave()
        return to_hidden, to_weight, to_bias, None, None


def _add_product(total: Tensor | None, one: Tensor, other: Tensor, dtype: torch.dtype) -> Tensor:
    """total + one @ other, in place and without a block of the product where the dtypes allow it."""
    if total is None:
        return (one @ other).to(dtype)
    return total.addmm_(one, other) if total.dtype == one.dtype else total.add_(one @ other)
