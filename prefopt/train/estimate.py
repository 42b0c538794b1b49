"""Memory of a run before anything loads: the first steps, computed on tensors that have shapes and no content.

The run's own model, adapter, scorer and optimizer take two steps with the largest micro-batch of the first epoch under
`FakeTensorMode`, while every storage is counted from its allocation to its end. Nothing is assumed about the model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import finalize

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

from prefopt.config import Recipe
from prefopt.data.collate import Collator
from prefopt.data.sampler import PickedRows, Rows, total_lengths
from prefopt.errors import ConfigError
from prefopt.losses import Objective
from prefopt.scores import Need
from prefopt.scoring.attention import let_pack, windows_of
from prefopt.scoring.heads import causal_model, find_head
from prefopt.scoring.layout import Batch, Layout
from prefopt.scoring.policy import STATISTICS, Arrangement, Scorer
from prefopt.train.build import prepare, training_arguments
from prefopt.train.model import load_tokenizer, model_path, switch_off_dropout, with_adapter
from prefopt.train.references import default_scorer
from prefopt.train.trainer import train_sampler

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Estimate:
    """Bytes on one device at the peak of a step, by what they are for. `optimizer` is None where it cannot be known."""

    weights: int
    reference: int
    gradients: int
    optimizer: int | None
    exchange: int
    computation: int
    rows: int
    tokens: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.reference + self.gradients + (self.optimizer or 0) + self.exchange + self.computation


def estimate(recipe: Recipe, *, world: int = 1, sharding: str = "none") -> Estimate:
    """What one of `world` devices holds at the peak of a step.

    `sharding` `zero2` divides gradients and optimizer; `zero3` and `fsdp` divide the weights too, and hold one decoder
    layer, with its gradients, and head or embedding whole at a time.
    Raises: `ConfigError`, `DataError` for what the recipe or its data get wrong.
    """
    args, objective = training_arguments(recipe), recipe.objective()
    tokenizer = load_tokenizer(
        recipe.model.name_or_path, revision=recipe.model.revision, trust_remote_code=recipe.model.trust_remote_code
    )
    rows = prepare(recipe, tokenizer, objective, args)["train"].rows
    batch = largest_batch(rows, args, recipe, objective)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.device("meta"):
        model = _model(recipe)
    with fake:
        _on_cpu(model)
    scorer = _settled(default_scorer(args, recipe.scoring.backend, recipe.scoring.layout), model)
    layout = scorer.laid_out(model, batch)  # with content: its shapes depend on it
    with fake:
        found = _simulated(model, scorer, layout, recipe, objective, args)
    shards = 1 if sharding == "none" else world
    held = world if sharding in WHOLE_NOWHERE else 1
    exchange = found["gradients"] if world > 1 and shards == 1 else 0  # the buckets that ranks sum
    gradients, optimizer = found["gradients"] // shards, found["optimizer"]
    return Estimate(
        weights=(_size(model) - _saved_by_quantization(model, recipe)) // held,
        reference=_reference_size(model, recipe, objective, args) // held,
        gradients=gradients,
        optimizer=None if optimizer is None else optimizer // shards,
        exchange=gathered(model) if held > 1 else exchange,
        computation=found["computation"],
        rows=len(batch["ids"]),
        tokens=int(batch["attention_mask"].sum()),
    )


WHOLE_NOWHERE = ("zero3", "fsdp")


def gathered(model: nn.Module) -> int:
    """Bytes that stand whole at a time where weights are shared out: a decoder layer, and head or embedding.

    Each with as much again where its gradients are made before they are shared out.
    """
    base = causal_model(model)
    layers = max((m for m in base.modules() if isinstance(m, nn.ModuleList)), key=_size, default=nn.ModuleList())
    ends = [m for m in (base.get_input_embeddings(), base.get_output_embeddings()) if m is not None]
    return max(map(_with_gradients, layers), default=0) + max(map(_with_gradients, ends), default=0)


def _with_gradients(unit: nn.Module) -> int:
    return _size(unit) + sum(_bytes(p) for p in unit.parameters() if p.requires_grad)


def largest_batch(rows: Rows, args: TrainingArguments, recipe: Recipe, objective: Objective) -> Batch:
    """The micro-batch of the first epoch that has the most tokens."""
    lengths = total_lengths(rows)
    sampler = train_sampler(rows, args, recipe.scoring.tokens_per_batch)
    picks = max(sampler, key=lambda batch: sum(int(lengths[pick.row]) for pick in batch))
    picked = PickedRows(rows, mismatched=Need.MISMATCHED in objective.needs)
    return Collator()([picked[pick] for pick in picks])


def _model(recipe: Recipe) -> Any:
    section = recipe.model
    try:
        config = AutoConfig.from_pretrained(
            model_path(section.name_or_path),
            revision=section.revision or "main",
            trust_remote_code=section.trust_remote_code,
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.name_or_path: no model at '{section.name_or_path}': {error}") from error
    switch_off_dropout(config)
    try:
        model = AutoModelForCausalLM.from_config(
            config,
            dtype=getattr(torch, section.dtype),
            attn_implementation=section.attn_implementation,
            trust_remote_code=section.trust_remote_code,
        )
    except (ValueError, ImportError) as error:
        raise ConfigError(f"model.attn_implementation: {str(error).strip().splitlines()[0]}") from error
    if section.adapter is None:
        return model
    if section.adapter.mode == "new":
        return with_adapter(model, section.adapter)
    from peft import PeftConfig, get_peft_model

    # merging leaves no trace in memory, and continuing has the shapes of the adapter that is continued
    if section.adapter.mode == "merge":
        return with_adapter(model, section.adapter.model_copy(update={"mode": "new", "start": None}))
    try:
        return get_peft_model(model, PeftConfig.from_pretrained(section.adapter.start))
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.adapter.start: {str(error).strip().splitlines()[0]}") from error


def _on_cpu(model: nn.Module) -> None:
    """Parameters and buffers on the meta device replaced by ones that say they lie on a CPU, tied ones by one."""
    made: dict[int, Tensor] = {}
    for module in model.modules():
        for owned in (module._parameters, module._buffers):
            for name, value in owned.items():
                if value is None:
                    continue
                if id(value) not in made:
                    twin = torch.empty(value.shape, dtype=value.dtype, device="cpu")
                    kept = isinstance(value, nn.Parameter)
                    made[id(value)] = nn.Parameter(twin, requires_grad=value.requires_grad) if kept else twin
                owned[name] = made[id(value)]  # type: ignore[assignment]


def _simulated(
    model: Any, scorer: Scorer, layout: Layout, recipe: Recipe, objective: Objective, args: TrainingArguments
) -> dict[str, Any]:
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=args.gradient_checkpointing_kwargs)
        model.enable_input_require_grads()
    trained = [p for p in model.parameters() if p.requires_grad]
    model.train()
    with Storages([*model.parameters(), *model.buffers()]) as storages:
        step(model, scorer, layout, recipe, objective)
        gradients = sum(_bytes(p.grad) for p in trained if p.grad is not None)
        optimizer = _optimizer(model, args)
        known = None
        if optimizer is not None:
            optimizer.step()
            known = sum(_bytes(v) for state in optimizer.state.values() for v in state.values() if torch.is_tensor(v))
            optimizer.zero_grad()
        else:
            model.zero_grad()
        storages.peak = storages.live
        for _ in range(min(args.gradient_accumulation_steps, 2)):
            step(model, scorer, layout, recipe, objective)
    return {"gradients": gradients, "optimizer": known, "computation": storages.peak - gradients - (known or 0)}


def step(model: Any, scorer: Scorer, layout: Layout, recipe: Recipe, objective: Objective) -> None:
    """Reference, policy and backward pass of one micro-batch; what the loss itself takes does not count."""
    wanted = STATISTICS.intersection(objective.needs)
    known = None
    if Need.REFERENCE in objective.needs and recipe.reference.source != "none":
        with torch.no_grad():
            known = scorer.of_layout(model, layout, distributions=Need.KL in wanted).distributions
    stats = scorer.of_layout(model, layout, wanted=wanted, reference=known)
    total = (stats.logps * stats.logps).sum()
    (total if stats.kl is None else total + stats.kl.sum()).backward()


def _settled(scorer: Scorer, model: Any) -> Scorer:
    """A scorer that has decided as it would for a model it can compute with."""
    inner = causal_model(model)
    head = None
    way: Arrangement = "separate"
    if scorer.backend != "plain":
        try:
            head = find_head(model)
        except ConfigError:
            head = None
    if scorer.layout != "separate":
        try:
            windows_of(model)
            way = "padded"
            let_pack(model)
            way = "packed"
        except ConfigError as error:
            logger.info("estimate: %s rows, because %s", way, str(error))
    scorer.settle(inner, head, way)
    return scorer


def _optimizer(model: nn.Module, args: TrainingArguments) -> torch.optim.Optimizer | None:
    try:
        kind, options = Trainer.get_optimizer_cls_and_kwargs(args)
        if not kind.__module__.startswith("torch."):
            raise ValueError(f"{kind.__name__} is not one of torch's")
        made: torch.optim.Optimizer = kind([p for p in model.parameters() if p.requires_grad], **options)
    except (ValueError, ImportError, TypeError) as error:
        name = getattr(args.optim, "value", args.optim)
        logger.warning("estimate: the memory of training.optim %s is not known and not counted (%s).", name, str(error))
        return None
    return made


def _reference_size(model: Any, recipe: Recipe, objective: Objective, args: TrainingArguments) -> int:
    """Bytes of a second model, or of an adapter's starting values; a cache that `auto` may find does not count."""
    section, adapter = recipe.reference, recipe.model.adapter
    if Need.REFERENCE not in objective.needs or section.source == "none" or section.cache not in ("auto", "off"):
        return 0
    if section.source == "initial" and adapter is not None:
        moves = adapter.mode == "continue" or section.sync is not None
        return sum(_bytes(p) for p in model.parameters() if p.requires_grad) if moves else 0
    base = causal_model(model)
    halved = 0
    if (args.bf16 or args.fp16) and section.sync is None:
        embedded = base.get_input_embeddings().weight
        linear = {id(m.weight): m for m in base.modules() if type(m) is nn.Linear and m.weight is not embedded}
        halved = sum(_bytes(p) // 2 for m in linear.values() for p in m.parameters() if p.dtype == torch.float32)
    own = {name: p for name, p in base.named_parameters() if "lora_" not in name}
    return sum(map(_bytes, own.values())) - halved


def _size(model: nn.Module) -> int:
    return sum(map(_bytes, [*model.parameters(), *model.buffers()]))


_BITS = {"4bit": 4.13, "8bit": 8.0}  # a weight with its share of the scales


def _saved_by_quantization(model: nn.Module, recipe: Recipe) -> int:
    kind = recipe.model.quantization
    if kind is None:
        return 0
    head = causal_model(model).get_output_embeddings()
    linear = [m for n, m in model.named_modules() if type(m) is nn.Linear and m is not head and "lora_" not in n]
    return round(sum(_bytes(m.weight) - m.weight.numel() * _BITS[kind] / 8 for m in linear))


def _bytes(value: Tensor) -> int:
    return value.numel() * value.element_size()


_GROUPED = (torch.ops.aten._grouped_mm.default,)


def _experts(one: Tensor, other: Tensor, offs: Tensor | None = None, bias: Any = None, out_dtype: Any = None) -> Tensor:
    """A product by groups of rows, or of columns; torch 2.13 knows its shape in bfloat16 only."""
    dtype = out_dtype or one.dtype
    if one.dim() == other.dim() == 2:
        assert offs is not None
        return one.new_empty(len(offs), one.shape[0], other.shape[1], dtype=dtype)
    return one.new_empty(*one.shape[:-1], other.shape[-1], dtype=dtype)


class Storages(TorchDispatchMode):
    """Bytes of the storages that operations made inside the block: alive now, and at most.

    `known` tensors existed before; a view of one, or an operation in place, makes nothing.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known = [value.untyped_storage() for value in known]  # kept, so that no other gets their places
        self._seen = {storage._cdata for storage in self._known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        out = _experts(*args, **(kwargs or {})) if func in _GROUPED else func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, Tensor):
                self._count(value.untyped_storage())
        return out

    def _count(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._seen:
            return
        size = storage.nbytes()
        self._seen.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        finalize(storage, self._end, key, size)

    def _end(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live -= size
