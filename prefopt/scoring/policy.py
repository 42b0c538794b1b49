"""Score a batch: a model and `[B, R, L]` token ids in, per-token log-probabilities `[B, R, T]` out."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from prefopt.errors import ConfigError
from prefopt.scores import Need, TokenStats
from prefopt.scoring.chunked import chunk_tokens, chunked_statistics
from prefopt.scoring.distributions import Distributions
from prefopt.scoring.heads import Head, causal_model, find_head, keeps_logits, last_hidden_states, verify_head
from prefopt.scoring.tokens import token_statistics

logger = logging.getLogger(__name__)

Batch = Mapping[str, Tensor]
Backend = Literal["auto", "chunked", "plain"]

STATISTICS = frozenset({Need.KL, Need.SUM_SQUARES})
"""What a scorer computes beside log-probabilities when it is asked to: fields of `TokenStats`."""


@dataclass(frozen=True)
class Layout:
    """The batch as the model sees it, and where each response token is predicted.

    `input_ids`, `attention_mask` `[N, L]` hold one row per present response. For each scored token, in batch order,
    `rows` and `columns` `[K]` are the place whose output predicts it, `labels` `[K]` its id; `mask` `[B, R, T]` says
    where they go.
    """

    input_ids: Tensor
    attention_mask: Tensor
    rows: Tensor
    columns: Tensor
    labels: Tensor
    mask: Tensor


def separate(batch: Batch) -> Layout:
    """One row per response, each with its own copy of the prompt. Missing responses get no row."""
    ids, attention, mask = batch["input_ids"], batch["attention_mask"], batch["mask"]
    present = attention.any(-1)  # [B, R]
    b, r, t = mask.nonzero(as_tuple=True)  # [K] each
    row_of = (present.flatten().cumsum(0) - 1).view(present.shape)
    columns = batch["prompt_lengths"][b] + t
    return Layout(
        input_ids=ids[present],
        attention_mask=attention[present],
        rows=row_of[b, r],
        columns=columns - 1,  # the output at a position predicts the next token
        labels=ids[b, r, columns],
        mask=mask,
    )


@dataclass
class Scorer:
    """How a model's batches are scored: layout and backend, settled once per model.

    `backend` `auto` takes `chunked` where the model's head is known and verified, `plain` elsewhere, and logs which.
    `chunk` is in tokens; None means as many as fit 64 MiB of logits. `autocast` is the dtype that matrix products run
    in over float32 weights, None for the weights' own.
    """

    backend: Backend = "auto"
    chunk: int | None = None
    autocast: torch.dtype | None = None
    _heads: dict[int, Head | None] = field(default_factory=dict, repr=False)

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
        layout, head, names = separate(batch), self.head(model), sorted(set(wanted) & STATISTICS)
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
    return model(input_ids=layout.input_ids, attention_mask=layout.attention_mask, use_cache=False, **options)


def score(model: nn.Module, batch: Batch, *, backend: Backend = "auto", chunk: int | None = None) -> TokenStats:
    """Per-token log-probabilities `[B, R, T]` of one batch, in nats, float32 or wider.

    Shapes: `input_ids`, `attention_mask` `[B, R, L]`, right-padded; `prompt_lengths` `[B]`; `mask` `[B, R, T]`, True
    where a response token is scored.
    Raises: `ConfigError` when `chunked` is asked of a model whose head it does not know.
    """
    return Scorer(backend=backend, chunk=chunk)(model, batch)
