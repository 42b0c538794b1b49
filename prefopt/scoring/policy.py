"""Score a batch: a model and `[B, R, L]` token ids in, per-token log-probabilities `[B, R, T]` out."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from prefopt.errors import ConfigError, DataError
from prefopt.scores import Need, TokenStats
from prefopt.scoring.attention import attention_inputs, let_pack, packs, windows_of
from prefopt.scoring.chunked import chunk_tokens, chunked_statistics
from prefopt.scoring.distributions import Distributions
from prefopt.scoring.fused import fused_logps, is_plain, trl_logps
from prefopt.scoring.heads import (
    Head,
    causal_model,
    find_head,
    following,
    in_place_of,
    keeps_logits,
    sharded,
    takes,
    verify_head,
)
from prefopt.scoring.layout import Batch, Layout, separate, shared_prefix
from prefopt.scoring.modes import evaluating
from prefopt.scoring.tokens import token_statistics

logger = logging.getLogger(__name__)

Backend = Literal["auto", "chunked", "plain", "trl"]
LayoutName = Literal["auto", "shared_prefix", "separate"]
Arrangement = Literal["packed", "padded", "separate"]
"""Rows of a batch: one per prompt, without padding or with it, or one per response."""

STATISTICS = frozenset({Need.KL, Need.SUM_SQUARES})
"""What a scorer computes beside log-probabilities when it is asked to: fields of `TokenStats`."""


@dataclass
class Scorer:
    """How a model's batches are scored: layout and backend, settled once per model.

    `layout` `auto` takes `shared_prefix` where the model says the same in both layouts, which is tried on a few rows of
    the first batch, and `separate` elsewhere, and logs why. A model with SDPA attention is given one that computes
    prompts behind one another in one row without padding (`prefopt.scoring.attention`); for whatever else it is asked
    it runs as before. `backend` `auto` takes `chunked` where the model's head is known and verified, `plain` elsewhere,
    and logs which; `trl` is TRL's function with its Triton kernel for the log-probabilities of a plain linear head, and
    `chunked` for what else is wanted. `chunk` is in tokens; None means as many as fit 128 MiB of logits. `autocast` is
    the dtype that matrix products run in over float32 weights, None for the weights' own.
    """

    backend: Backend = "auto"
    chunk: int | None = None
    autocast: torch.dtype | None = None
    layout: LayoutName = "auto"
    _heads: WeakKeyDictionary[nn.Module, Head | None] = field(default_factory=WeakKeyDictionary, repr=False)
    _arranged: WeakKeyDictionary[nn.Module, Arrangement] = field(default_factory=WeakKeyDictionary, repr=False)
    _sloped: WeakSet[nn.Module] = field(default_factory=WeakSet, repr=False)  # whose gradients were compared, too
    _warned: WeakSet[nn.Module] = field(default_factory=WeakSet, repr=False)

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
        self._warn_of_batches(model, batch)
        layout = self.laid_out(model, batch)
        return self.of_layout(model, layout, wanted=wanted, reference=reference, distributions=distributions)

    def of_layout(
        self,
        model: nn.Module,
        layout: Layout,
        *,
        wanted: Collection[Need] = (),
        reference: Distributions | None = None,
        distributions: bool = False,
    ) -> TokenStats:
        """The same of a batch that is laid out."""
        head, names = self.head(model), sorted(set(wanted) & STATISTICS)
        if sharded(model) and (distributions or reference is not None):
            head = None  # the two models' heads would be needed at once, and each is whole in its own forward only
        with self._precision(model):
            if head is None:
                values = _logits(model, layout)
                known = None if reference is None else reference.logits(slice(None))
                flat = token_statistics(values, layout.labels, names, known)
            else:
                values, flat = self._by_head(model, layout, head, names, reference)
        empty = flat.new_zeros(layout.mask.shape)
        logps, *rest = (empty.masked_scatter(layout.mask, column) for column in flat.unbind(-1))
        statistics: dict[str, Tensor] = {need.value: value for need, value in zip(names, rest, strict=True)}
        if (
            Need.SUM_SQUARES in names
        ):  # a weight, not a term; stacking beside the log-probabilities hung it on the graph
            statistics["sum_squares"] = statistics["sum_squares"].detach()
        own = Distributions(values, head) if distributions else None
        return TokenStats(logps, **statistics, distributions=own)

    def _by_head(
        self, model: nn.Module, layout: Layout, head: Head, names: list[Need], reference: Distributions | None
    ) -> tuple[Tensor, Tensor]:
        """Hidden states that predict the scored tokens, `[K, H]`, and statistics of these, `[K, 1 + len(names)]`."""
        chunk, labels, kept = self.chunk or chunk_tokens(head.vocabulary), layout.labels, []
        columns, rows = _columns(layout)

        def compute(hidden: Tensor) -> Tensor:
            values = hidden[0] if rows is None else hidden[rows]
            kept.append(values)
            if not names and self.backend == "trl":
                flat = trl_logps(values, labels, head).unsqueeze(-1)
            elif not names and is_plain(head):
                flat = fused_logps(values, labels, head, chunk=chunk).unsqueeze(-1)
            else:
                flat = chunked_statistics(values, labels, head, chunk=chunk, wanted=names, reference=reference)
            return torch.stack([flat])  # of logits' rank, for what models do to logits; no view, which FSDP warns of

        with in_place_of(head.module, compute) as answers:
            _forward(model, layout, logits_to_keep=columns)
        return kept[0], answers[0][0]

    def _precision(self, model: nn.Module) -> torch.autocast:
        device = next(model.parameters()).device.type
        return torch.autocast(device, dtype=self.autocast, enabled=self.autocast is not None)

    def _warn_of_batches(self, model: nn.Module, batch: Batch) -> None:
        """Say once of a model that its values depend on which rows stand in a batch, when rows are long enough."""
        key = causal_model(model)
        follows = None if key in self._warned else following(key)
        if follows is not None and int(batch["attention_mask"].sum(-1).max()) > follows.limit:
            self._warned.add(key)
            logger.warning("%s: log-probabilities depend on which rows stand in a batch.", follows)

    def laid_out(self, model: nn.Module, batch: Batch) -> Layout:
        """The batch as this model is to see it.

        Raises: `ConfigError` when `shared_prefix` is asked of a model that does not say the same in it.
        """
        if self.layout == "separate":
            return separate(batch)
        key = causal_model(model)
        if key not in self._arranged:
            settled = self._settle_layout(model, batch)
            if settled is None:
                return separate(batch)
            self._arranged[key] = settled
            if torch.is_grad_enabled() or sharded(model):
                self._sloped.add(key)
        elif key not in self._sloped and torch.is_grad_enabled():  # values were compared while no gradient was wanted
            self._settle_slopes(key, batch)
        return _arranged(batch, self._arranged[key])

    def settle(self, model: nn.Module, head: Head | None, arrangement: Arrangement) -> None:
        """Decide for a model what its first batch would."""
        self._heads[causal_model(model)], self._arranged[causal_model(model)] = head, arrangement
        self._sloped.add(causal_model(model))

    def settled(self, model: nn.Module) -> Arrangement | None:
        """How this model's batches are arranged; None until the first batch has decided."""
        return "separate" if self.layout == "separate" else self._arranged.get(causal_model(model))

    def _settle_layout(self, model: nn.Module, batch: Batch) -> Arrangement | None:
        """None when these rows decide nothing: their log-probabilities are not finite in any layout."""
        shared = sharded(model)  # then every rank is here, and gradients of whole weights are nowhere
        asked = model if shared else causal_model(model)  # not through wrappers: other ranks do not wait
        try:
            with torch.set_grad_enabled(torch.is_grad_enabled() and not shared):
                fresh = replace(self, _heads=WeakKeyDictionary(), _arranged=WeakKeyDictionary())
                return compare_layouts(asked, _few(batch), fresh)
        except ConfigError as error:
            return self._refused(error)

    def _settle_slopes(self, model: nn.Module, batch: Batch) -> None:
        """Compare the gradients of an arrangement whose values are known to be right."""
        few, way = _few(batch), self._arranged[model]
        fresh = replace(self, _heads=WeakKeyDictionary(), _arranged=WeakKeyDictionary())
        try:
            if way != "separate" and _some_weights(model):
                expected = _measured(model, few, fresh, "separate")
                if not expected[0][few["mask"]].isfinite().all():
                    return  # these rows decide nothing
                _compare(model, expected, way, few, fresh)
        except ConfigError as error:
            self._arranged[model] = self._refused(error)
        self._sloped.add(model)

    def _refused(self, error: ConfigError) -> Arrangement:
        if self.layout == "shared_prefix":
            raise error
        logger.info("scoring: one row per response, because %s", str(error))
        return "separate"

    def head(self, model: nn.Module) -> Head | None:
        """The verified head of the chunked backend, None for the plain one."""
        if self.backend == "plain":
            return None
        key = causal_model(model)
        known = self._heads.get(key, _UNSETTLED)
        if known is not None and known.module is not _output_embeddings(key):  # never seen, resized, adapted, merged
            known = self._heads[key] = self._settle(model)
        return known

    def _settle(self, model: nn.Module) -> Head | None:
        try:
            head = find_head(model)
            with self._precision(head.module):
                verify_head(model, head)
            if self.backend == "trl" and not is_plain(head):
                kind = type(head.module).__name__
                raise ConfigError(f"scoring.backend: trl reads a plain linear head, and {kind} is none; use auto.")
        except ConfigError as error:
            if self.backend in ("chunked", "trl"):
                raise
            logger.info("scoring: plain backend, because %s", str(error))
            return None
        return head


_UNSETTLED = Head(nn.Module())


def _output_embeddings(model: Any) -> nn.Module | None:
    return model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None


def _columns(layout: Layout) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """The columns a model is to keep, and where among them the scored tokens are predicted: everywhere if None."""
    if layout.pieces is not None:
        return layout.columns, None
    kept = torch.arange(layout.first, layout.input_ids.shape[1], device=layout.input_ids.device)
    return kept, (layout.rows, layout.columns - layout.first)


def _logits(model: nn.Module, layout: Layout) -> Tensor:
    """Logits that predict the scored tokens, `[K, V]`."""
    if not keeps_logits(model):
        return _forward(model, layout).logits[layout.rows, layout.columns]  # type: ignore[no-any-return]
    columns, places = _columns(layout)
    logits = _forward(model, layout, logits_to_keep=columns).logits
    return logits[0] if places is None else logits[places]  # type: ignore[no-any-return]


def _forward(model: nn.Module, layout: Layout, **options: Any) -> Any:
    seen = attention_inputs(model, layout)
    if takes(model, "output_router_logits"):
        options["output_router_logits"] = False  # they serve an auxiliary loss that nobody asks for here
    return model(input_ids=layout.input_ids, use_cache=False, **seen, **options)


_FULL_PRECISION = (5e-4, 2e-2)  # mean and largest difference of a token's log-probability between layouts, nats
_HALF_PRECISION = (3e-2, 1.0)


def compare_layouts(model: nn.Module, batch: Batch, scorer: Scorer) -> Arrangement | None:
    """Score a batch with separate rows and with shared prefixes, and compare the gradients of a few weights.

    Returns the arrangement to use: packed where the model's attention can be given prompts without padding. None when
    the rows are not finite, so that there is nothing to compare.
    Raises: `ConfigError` when the model cannot be given a shared prefix, or says something else in it.
    """
    windows_of(model)
    config = causal_model(model).config.get_text_config()
    before = config._attn_implementation
    expected = _measured(model, batch, scorer, "separate")
    broken = None if expected[0][batch["mask"]].isfinite().all() else "not finite"
    if _first_said(broken, model):
        return None
    try:
        let_pack(model)
        _compare(model, expected, "packed", batch, scorer)
        return "packed"
    except ConfigError as error:
        if packs(model):
            causal_model(model).set_attn_implementation(before)
        logger.info("scoring: rows are padded, because %s", str(error))
    _compare(model, expected, "padded", batch, scorer)
    return "padded"


def _first_said(problem: str | None, model: nn.Module) -> str | None:
    """The problem, or where weights are shared out the first of any rank: all must go the same way."""
    if not sharded(model):
        return problem
    found: list[str | None] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(found, problem)
    return next((one for one in found if one), None)


Measured = tuple[Tensor, tuple[Tensor, ...]]


def _measured(model: nn.Module, batch: Batch, scorer: Scorer, way: Arrangement) -> Measured:
    """Log-probabilities in this arrangement, and where gradients are wanted those of a few weights."""
    inner = causal_model(model)
    weights = _some_weights(inner) if torch.is_grad_enabled() else []
    with evaluating(model):
        try:
            known: dict[str, Any] = {"_arranged": WeakKeyDictionary({inner: way}), "_sloped": WeakSet([inner])}
            logps = replace(scorer, layout="auto", **known)(model, batch).logps
        except DataError:  # the rows', not the model's
            raise
        except (ValueError, TypeError, RuntimeError, IndexError, KeyError, AttributeError) as error:
            kind = type(inner).__name__
            raise ConfigError(f"{kind} does not take a shared prefix ({type(error).__name__}: {error})") from error
        slope = logps.cos().detach()  # any fixed numbers; those of one layout serve both within its error
        if not weights:
            return logps.detach(), ()
        total = (logps * slope).sum()
        return logps.detach(), torch.autograd.grad(total, weights, allow_unused=True, materialize_grads=True)


def _compare(model: nn.Module, expected: Measured, way: Arrangement, batch: Batch, scorer: Scorer) -> None:
    problem = _first_said(_difference(model, expected, _measured(model, batch, scorer, way), batch, scorer), model)
    if problem is not None:
        raise ConfigError(f"{type(causal_model(model)).__name__} {problem}")


def _difference(model: nn.Module, expected: Measured, found: Measured, batch: Batch, scorer: Scorer) -> str | None:
    gap = (expected[0] - found[0]).abs()[batch["mask"]]
    half = scorer.autocast is not None or next(model.parameters()).dtype in (torch.float16, torch.bfloat16)
    mean, largest = _HALF_PRECISION if half else _FULL_PRECISION
    if len(gap) and not (gap.mean() <= mean and gap.max() <= largest):
        return f"gives other log-probabilities with a shared prefix, {gap.max():.2g} nats apart"
    for one, other in zip(expected[1], found[1], strict=True):
        apart = (one - other).norm() / one.norm().clamp(min=1e-12)
        if not apart <= (0.3 if half else 1e-2):
            return f"gives another gradient with a shared prefix, {apart:.2g} apart in relative norm"
    return None


def _few(batch: Batch, *, responses: int = 3) -> Batch:
    """The longest row and the shortest, or the only one twice, with their first responses: enough to compare on."""
    lengths = batch["attention_mask"].sum((1, 2))
    picked = torch.stack([lengths.argmax(), lengths.argmin()])
    few = {name: batch[name][picked] for name in ("input_ids", "attention_mask", "prompt_lengths", "mask")}
    return few | {name: few[name][:, :responses] for name in ("input_ids", "attention_mask", "mask")}


def _arranged(batch: Batch, way: Arrangement) -> Layout:
    if way == "separate":
        return separate(batch)
    layout = shared_prefix(batch)
    return layout.packed() if way == "packed" else layout


def _some_weights(model: Any, *, limit: int = 2**22, most: int = 8) -> list[nn.Parameter]:
    """Trained weights from the first to the last layer, small enough that their gradient is no burden.

    Several, since a model may have weights that text alone does not use: those of images.
    """
    trained = [p for p in model.parameters() if p.requires_grad and p.numel() <= limit]
    if len(trained) <= most:
        return trained
    return [trained[at * (len(trained) - 1) // (most - 1)] for at in range(most)]


def score(model: nn.Module, batch: Batch, *, backend: Backend = "auto", chunk: int | None = None) -> TokenStats:
    """Per-token log-probabilities `[B, R, T]` of one batch, in nats, float32 or wider.

    Shapes: `input_ids`, `attention_mask` `[B, R, L]`, right-padded; `prompt_lengths` `[B]`; `mask` `[B, R, T]`, True
    where a response token is scored.
    Raises: `ConfigError` when `chunked` is asked of a model whose head it does not know.
    """
    return _scorer(backend, chunk)(model, batch)


@cache
def _scorer(backend: Backend, chunk: int | None) -> Scorer:
    """One for all calls, so that a model is looked at once."""
    return Scorer(backend=backend, chunk=chunk)
