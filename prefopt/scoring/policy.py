"""Score a batch: a model and `[B, R, L]` token ids in, per-token log-probabilities `[B, R, T]` out."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from prefopt.errors import ConfigError
from prefopt.scores import Need, TokenStats
from prefopt.scoring.attention import attention_inputs, windows_of
from prefopt.scoring.chunked import chunk_tokens, chunked_statistics
from prefopt.scoring.distributions import Distributions
from prefopt.scoring.heads import Head, causal_model, find_head, keeps_logits, last_hidden_states, verify_head
from prefopt.scoring.layout import Batch, Layout, separate, shared_prefix
from prefopt.scoring.modes import evaluating
from prefopt.scoring.tokens import token_statistics

logger = logging.getLogger(__name__)

Backend = Literal["auto", "chunked", "plain"]
LayoutName = Literal["auto", "shared_prefix", "separate"]

STATISTICS = frozenset({Need.KL, Need.SUM_SQUARES})
"""What a scorer computes beside log-probabilities when it is asked to: fields of `TokenStats`."""


@dataclass
class Scorer:
    """How a model's batches are scored: layout and backend, settled once per model.

    `layout` `auto` takes `shared_prefix` where the model says the same in both layouts, which is tried on the first
    batch with several responses, and `separate` elsewhere, and logs why. `backend` `auto` takes `chunked` where the
    model's head is known and verified, `plain` elsewhere, and logs which. `chunk` is in tokens; None means as many as
    fit 64 MiB of logits. `autocast` is the dtype that matrix products run in over float32 weights, None for the
    weights' own.
    """

    backend: Backend = "auto"
    chunk: int | None = None
    autocast: torch.dtype | None = None
    layout: LayoutName = "auto"
    _heads: dict[int, Head | None] = field(default_factory=dict, repr=False)
    _shares: dict[int, bool] = field(default_factory=dict, repr=False)

    def __call__(
        self,
        model: nn.Module,
        batch: Batch,
        *,
        wanted: Collection[Need] = (),
        reference: Distributions | None = None,
        distributions: bool = False,
    ) -> TokenStats:
        """Per-token log-probabilities `[B, R, T]` of the batch's responses, in nats; zero outside the mask.

        `wanted` names statistics that stand beside them; `Need.KL` compares with the `reference`'s distributions. With
        `distributions` the model's own come back too, for such a comparison.
        """
        layout, head, names = self.laid_out(model, batch), self.head(model), sorted(set(wanted) & STATISTICS)
        with torch.autocast(layout.input_ids.device.type, dtype=self.autocast, enabled=self.autocast is not None):
            if head is None:
                values = _logits(model, layout)
                known = None if reference is None else reference.logits(slice(None))
                flat = token_statistics(values, layout.labels, names, known)
            else:
                values, vocabulary = _hidden(model, layout)
                chunk = self.chunk or chunk_tokens(vocabulary)
                flat = chunked_statistics(values, layout.labels, head, chunk=chunk, wanted=names, reference=reference)
        empty = flat.new_zeros(layout.mask.shape)
        logps, *rest = (empty.masked_scatter(layout.mask, column) for column in flat.unbind(-1))
        statistics: dict[str, Tensor] = {need.value: value for need, value in zip(names, rest, strict=True)}
        if (
            Need.SUM_SQUARES in names
        ):  # a weight, not a term; stacking beside the log-probabilities hung it on the graph
            statistics["sum_squares"] = statistics["sum_squares"].detach()
        own = Distributions(values, head) if distributions else None
        return TokenStats(logps, **statistics, distributions=own)

    def laid_out(self, model: nn.Module, batch: Batch) -> Layout:
        """The batch as this model is to see it.

        Raises: `ConfigError` when `shared_prefix` is asked of a model that does not say the same in it.
        """
        if self.layout == "separate" or (self.layout == "auto" and batch["mask"].shape[1] == 1):
            return separate(batch)
        key = id(causal_model(model))
        if key not in self._shares:
            self._shares[key] = self._settle_layout(model, batch)
        return shared_prefix(batch) if self._shares[key] else separate(batch)

    def settled(self, model: nn.Module) -> LayoutName:
        """The layout of this model's batches; `auto` until the first batch with several responses has decided."""
        shares = self._shares.get(id(causal_model(model)))
        if self.layout == "auto" and shares is not None:
            return "shared_prefix" if shares else "separate"
        return self.layout

    def _settle_layout(self, model: nn.Module, batch: Batch) -> bool:
        try:
            compare_layouts(model, batch, replace(self, _heads={}, _shares={}))
        except ConfigError as error:
            if self.layout == "shared_prefix":
                raise
            logger.info("scoring: one row per response, because %s", error)
            return False
        return True

    def head(self, model: nn.Module) -> Head | None:
        """The verified head of the chunked backend, None for the plain one."""
        if self.backend == "plain":
            return None
        key = id(causal_model(model))
        if key not in self._heads:
            self._heads[key] = self._settle(model)
        return self._heads[key]

    def _settle(self, model: nn.Module) -> Head | None:
        try:
            head = find_head(model)
            verify_head(model, head)
        except ConfigError as error:
            if self.backend == "chunked":
                raise
            logger.info("scoring: plain backend, because %s", error)
            return None
        return head


def _hidden(model: nn.Module, layout: Layout) -> tuple[Tensor, int]:
    """Hidden states that predict the scored tokens, `[K, H]`, and the size of the vocabulary they predict."""
    nothing = torch.empty(0, dtype=torch.long, device=layout.input_ids.device)
    with last_hidden_states(model) as hidden:
        output = _forward(model, layout, logits_to_keep=nothing)
    return hidden[-1][layout.rows, layout.columns], output.logits.shape[-1]


def _logits(model: nn.Module, layout: Layout) -> Tensor:
    """Logits that predict the scored tokens, `[K, V]`."""
    if keeps_logits(model) and len(layout.columns):
        first = int(layout.columns.min())
        window = torch.arange(first, layout.input_ids.shape[1], device=layout.input_ids.device)
        logits = _forward(model, layout, logits_to_keep=window).logits
    else:
        first, logits = 0, _forward(model, layout).logits
    return logits[layout.rows, layout.columns - first]  # type: ignore[no-any-return]


def _forward(model: nn.Module, layout: Layout, **options: Tensor) -> Any:
    seen = attention_inputs(model, layout)
    return model(input_ids=layout.input_ids, use_cache=False, **seen, **options)


_FULL_PRECISION = (5e-4, 2e-2)  # mean and largest difference of a token's log-probability between layouts, nats
_HALF_PRECISION = (3e-2, 1.0)


def compare_layouts(model: nn.Module, batch: Batch, scorer: Scorer) -> None:
    """Score a batch in both layouts, and once compare the gradients of a few weights.

    Raises: `ConfigError` when the model cannot be given a shared prefix, or says something else in it.
    """
    inner = causal_model(model)
    kind = type(inner).__name__
    windows_of(model)
    weights = _some_weights(inner) if torch.is_grad_enabled() else []
    found = []
    with evaluating(model):
        for layout in ("separate", "shared_prefix"):
            try:
                logps = replace(scorer, layout=layout, _shares={id(inner): True})(model, batch).logps
            except (ValueError, TypeError, RuntimeError, IndexError, KeyError, AttributeError) as error:
                raise ConfigError(f"{kind} does not take a shared prefix ({type(error).__name__}: {error})") from error
            slope = logps.cos().detach()  # any fixed numbers; those of one layout serve both within its error
            found.append((logps.detach(), torch.autograd.grad((logps * slope).sum(), weights) if weights else ()))
    (ours, ours_slopes), (theirs, theirs_slopes) = found
    gap = (ours - theirs).abs()[batch["mask"]]
    half = scorer.autocast is not None or next(inner.parameters()).dtype in (torch.float16, torch.bfloat16)
    mean, largest = _HALF_PRECISION if half else _FULL_PRECISION
    if not (gap.mean() <= mean and gap.max() <= largest):
        raise ConfigError(f"{kind} gives other log-probabilities with a shared prefix, {gap.max():.2g} nats apart")
    for one, other in zip(ours_slopes, theirs_slopes, strict=True):
        apart = (one - other).norm() / one.norm().clamp(min=1e-12)
        if not apart <= (0.3 if half else 1e-2):
            raise ConfigError(f"{kind} gives another gradient with a shared prefix, {apart:.2g} apart in relative norm")


def _some_weights(model: nn.Module, *, limit: int = 2**22) -> list[nn.Parameter]:
    """The first trained weights and the last, small enough that their gradient is no burden."""
    trained = [p for p in model.parameters() if p.requires_grad and p.numel() <= limit]
    return [trained[0], trained[-1]] if len(trained) > 1 else trained


def score(model: nn.Module, batch: Batch, *, backend: Backend = "auto", chunk: int | None = None) -> TokenStats:
    """Per-token log-probabilities `[B, R, T]` of one batch, in nats, float32 or wider.

    Shapes: `input_ids`, `attention_mask` `[B, R, L]`, right-padded; `prompt_lengths` `[B]`; `mask` `[B, R, T]`, True
    where a response token is scored.
    Raises: `ConfigError` when `chunked` is asked of a model whose head it does not know.
    """
    return Scorer(backend=backend, chunk=chunk)(model, batch)
