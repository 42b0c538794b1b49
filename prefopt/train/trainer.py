"""`transformers.Trainer` with the arithmetic of preference optimization: exact means over rows, ranks and accumulation.

Only public hooks are overridden, and no formula lives here: what a step computes is `prefopt.train.step`.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import EvalLoopOutput

from prefopt.context import Draw, Gather, StepContext
from prefopt.data.collate import Collator
from prefopt.data.sampler import (
    BatchSampler,
    MicroBatches,
    PickedRows,
    PreferenceLoader,
    Rows,
    TokenSampler,
    total_lengths,
)
from prefopt.errors import ConfigError, NonFiniteError, RunError
from prefopt.losses import Loss, Objective, get_loss
from prefopt.runs import RunDirectory
from prefopt.scores import Need, Scores
from prefopt.scoring.heads import causal_model
from prefopt.scoring.layout import padding
from prefopt.scoring.policy import Scorer
from prefopt.scoring.reference import ModelReference, Reference
from prefopt.train.guards import Guards
from prefopt.train.metrics import MetricSums, add_sides, means, pair_metrics, row_metrics, wide
from prefopt.train.model import trainable
from prefopt.train.ranks import RankGather
from prefopt.train.references import default_scorer, initial_reference
from prefopt.train.refusals import (
    Coupling,
    check_window,
    refuse_data_parallel,
    refuse_dropout,
    refuse_unsupported,
    warn_of_dropout,
    warn_of_router,
)
from prefopt.train.select import select, selecting
from prefopt.train.sharding import check_sharding, part, sharding_of, share_out
from prefopt.train.step import Step, describe_rows, evaluated, nothing, score_batch, slopes_of, without_rows
from prefopt.train.window import DERIVATIVES, PREPARED, linearized, surrogate

logger = logging.getLogger(__name__)

_TOKENS, _SKIPPED = "tokens", "skipped"  # totals, not means


def train_sampler(
    rows: Rows, args: TrainingArguments, tokens_per_batch: int | None = None
) -> BatchSampler | TokenSampler:
    """The order of the training rows on this rank, and their micro-batches."""
    how: dict[str, Any] = {
        "rank": args.process_index,
        "world": args.world_size,
        "seed": args.data_seed if args.data_seed is not None else args.seed,
        "shuffle": args.train_sampling_strategy != "sequential",
        "drop_last": args.dataloader_drop_last,
    }
    if tokens_per_batch is None:
        return BatchSampler(len(rows), args.train_batch_size, **how)
    return TokenSampler(total_lengths(rows), tokens_per_batch, **how)


RowEvaluation = Callable[["PreferenceTrainer", Rows, str], dict[str, float]]


class PreferenceTrainer(Trainer):
    """Train a causal language model on tokenized preference rows with any registered loss.

    `objective` is a loss from `get_loss` or an `Objective`. `train_dataset` and `eval_dataset` (one, or several by
    name) hold rows as `prefopt.data.prepare_rows` makes them. `reference` defaults to the model as it is now: its
    adapter switched off if it has one, a frozen copy if not, and none when no loss needs one. `nonfinite` says what a
    NaN does: `stop` ends the run before the optimizer moves, `skip` leaves the row out and counts it. `coupling` is the
    window that a batch-coupled loss sees: the prompts of one micro-batch on all ranks, or of the whole optimizer step,
    which is exact however the step is cut and costs one forward pass without gradient. `tokens_per_batch` makes
    micro-batches of rows of like length that fit it, in place of `per_device_train_batch_size` rows. `run` receives
    `metrics.jsonl`.

    Raises: `ConfigError` for several visible devices in one process, a model with nothing to train, or a window so
    narrow that a batch-coupled loss would silently be its plain relative.
    """

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        *,
        objective: Objective | Loss | str,
        train_dataset: Rows | None = None,
        eval_dataset: Rows | Mapping[str, Rows] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        reference: Reference | None = None,
        scorer: Scorer | None = None,
        nonfinite: Literal["stop", "skip"] = "stop",
        coupling: Coupling = "micro",
        tokens_per_batch: int | None = None,
        run: RunDirectory | None = None,
        row_evaluation: RowEvaluation | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        refuse_data_parallel(args)
        check_sharding(args, nonfinite=nonfinite, reference=reference)
        refuse_unsupported(args)
        trainable(model)
        warn_of_dropout(model)
        warn_of_router(model)
        args.logging_nan_inf_filter = False  # it would show a repaired number
        loss = get_loss(objective) if isinstance(objective, str) else objective
        self.objective = Objective.of(loss) if isinstance(loss, Loss) else loss
        check_window(self.objective, args, coupling, tokens_per_batch)
        selecting(self.objective)  # raises for two losses that both draw
        if coupling == "step" and self.objective.window:
            refuse_dropout(model)
        self.scorer = scorer or default_scorer(args)
        if reference is None:  # before anything moves
            reference = initial_reference(model, self.objective.needs, self.scorer)
        self.reference = reference
        self.nonfinite, self.run, self.row_evaluation = nonfinite, run, row_evaluation
        self.coupling: Coupling = coupling
        self.tokens_per_batch = tokens_per_batch
        self.loss_state: dict[str, Any] | None = None
        self._said_narrow: set[str] = set()
        self.sums: dict[str, MetricSums] = {"train": MetricSums(), "eval": MetricSums()}
        self.tokens_seen = 0
        self.skipped: list[str] = []
        self._named_rows = train_dataset
        self._last_log = time.monotonic()
        pad = None if processing_class is None else processing_class.pad_token_id
        self.collator = Collator(0 if pad is None else pad)
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=dict(eval_dataset) if isinstance(eval_dataset, Mapping) else eval_dataset,
            processing_class=processing_class,
            data_collator=self.collator,
            callbacks=[*callbacks, Guards(self)],
        )
        self.loss_is_scaled_for_ga = True  # the sum below is already divided by every row of the optimizer step
        self.sharding = sharding_of(args)
        if self.sharding is not None:
            self.reference = share_out(self.reference, self.accelerator, self.sharding)
        elif isinstance(self.reference, ModelReference):
            self.reference.model.to(args.device)
        if self.is_deepspeed_enabled and self.sharding is None:
            self.model.to(args.device)  # DeepSpeed moves it when training begins; its first rows are scored before

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As `Trainer.train`, also after an evaluation on several processes."""
        # An evaluation marks the model as prepared without wrapping it; training would then skip the wrapping too, and
        # ranks would never exchange gradients (transformers 5.24, accelerate 1.15). Goes when evaluate, train wraps.
        if self.args.world_size > 1 and self.model_wrapped is self.model and self.sharding is None:
            self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)
            self.model.__dict__.pop("_is_accelerate_prepared", None)
        return super().train(*args, **kwargs)

    # data

    def get_train_dataloader(self) -> DataLoader[Any]:
        """One global order of rows for any number of ranks; see `prefopt.data.sampler`."""
        if self.train_dataset is None:
            raise ConfigError("there are no rows to train on: pass train_dataset.")
        sampler = self.train_sampler()
        if len(sampler) == 0:
            size = f"one batch of {self._train_batch_size} per device" if self.tokens_per_batch is None else "a batch"
            raise ConfigError(
                f"{len(self.train_dataset)} rows do not fill {size}, and training.dataloader_drop_last leaves a short "
                "one out: nothing would be trained."
            )
        return self._loader(self.train_dataset, sampler, mismatched=Need.MISMATCHED in self.objective.needs)

    def train_sampler(self) -> BatchSampler | TokenSampler:
        """The order of the training rows, and their micro-batches."""
        assert self.train_dataset is not None
        return train_sampler(self.train_dataset, self.args, self.tokens_per_batch)

    def get_eval_dataloader(self, eval_dataset: str | Rows | None = None) -> DataLoader[Any]:
        """The rows of an evaluation set in order, shared out over ranks, none twice."""
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(rows, str):
            rows = self.eval_dataset[rows]
        if rows is None or len(rows) == 0:
            raise ConfigError("there are no rows to evaluate on: pass eval_dataset.")
        world, rank = self.args.world_size, self.args.process_index
        sampler = BatchSampler(len(rows), self.args.eval_batch_size, rank=rank, world=world, shuffle=False)
        return self._loader(rows, sampler)

    def get_test_dataloader(self, test_dataset: Rows) -> DataLoader[Any]:
        """As for an evaluation set."""
        return self.get_eval_dataloader(test_dataset)

    def _loader(self, rows: Rows, sampler: MicroBatches, *, mismatched: bool = False) -> DataLoader[Any]:
        workers = self.args.dataloader_num_workers
        return PreferenceLoader(
            PickedRows(rows, mismatched=mismatched),
            batch_sampler=sampler,
            collate_fn=self.collator,
            num_workers=workers,
            pin_memory=self.args.dataloader_pin_memory and self.args.device.type == "cuda",
            persistent_workers=self.args.dataloader_persistent_workers and workers > 0,
            prefetch_factor=self.args.dataloader_prefetch_factor if workers > 0 else None,
        )

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list[Any], Any]:
        """The micro-batches of one optimizer step, and how many rows they hold on all ranks."""
        batches = list(itertools.islice(epoch_iterator, num_batches))
        rows = sum(float(batch["weight"].sum()) for batch in batches)
        total = self.sum_over_ranks(wide(torch.tensor(rows, device=device)))
        if batches and self.coupling == "step" and self.objective.window:
            batches = self._window(batches)
        return batches, total

    def sum_over_ranks(self, value: Tensor) -> Tensor:
        """The sum of a tensor over all ranks."""
        if self.args.world_size == 1:
            return value
        return self.accelerator.reduce(value, reduction="sum")  # type: ignore[no-any-return]

    # one step

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """This rank's share of the mean loss over the rows of the optimizer step, or of this batch in evaluation."""
        rows = None if num_items_in_batch is None else num_items_in_batch / self.args.world_size
        if PREPARED in inputs:
            assert rows is not None  # only training prepares batches
            return self._replayed(model, inputs) / rows
        step, inputs = self.scored(model, inputs)
        if step is None:
            return nothing_lost(model, self.args.device)
        weight = inputs["weight"]
        self._add_metrics("train" if model.training else "eval", step, inputs, slopes_of(step))
        loss = (step.out.losses * weight).sum() / (weight.sum() if rows is None else rows)
        loss = loss.to(torch.float32) if loss.dtype == torch.float64 else loss
        return (loss, step) if return_outputs else loss

    def _add_metrics(
        self, which: Literal["train", "eval"], step: Step, inputs: dict[str, Tensor], slopes: Tensor | None
    ) -> None:
        weight, sums = inputs["weight"], self.sums[which]
        sums.add(row_metrics(step.out), weight)
        add_sides(sums, step.scores, weight, slopes=slopes)
        sums.add(pair_metrics(step.out, step.scores), weight * step.scores.present[:, 1:].any(-1))
        sums.add_total(_TOKENS, (inputs["attention_mask"].sum((1, 2)) * weight).sum(), torch.ones_like(weight[0]))

    def scored(self, model: nn.Module, inputs: dict[str, Tensor]) -> tuple[Step | None, dict[str, Tensor]]:
        """Score a batch. A row that is not finite stops the run, or is left out; None when no row is left.

        Raises: `RunError` that names the rows.
        """
        scores, inputs = self._scores(model, inputs)
        if self.objective.coupled:
            return self._coupled(scores, inputs, training=model.training), inputs
        if scores is None:
            return None, inputs
        try:
            return Step(evaluated(self.objective, scores), scores), inputs
        except NonFiniteError as error:
            inputs = self._left_out(model, inputs, error)
        return self.scored(model, inputs) if len(inputs["ids"]) else (None, inputs)

    def _scores(self, model: nn.Module, inputs: dict[str, Tensor]) -> tuple[Scores | None, dict[str, Tensor]]:
        """Scores of those rows of a batch that have finite ones, and these rows; None when there is none.

        Where a loss draws among many responses, the rows come back with the drawn ones.
        """
        known: dict[str, Any] = {"scorer": self.scorer, "reference": self.reference}
        drawing = StepContext(draw=self._draw, training=model.training)
        while len(inputs["ids"]):
            try:
                picked = select(model, inputs, self.objective, context=drawing, **known)
                scores = score_batch(model, picked, self.objective.needs, **known)
                empty, columns = padding(picked, self.scorer.settled(model))
                self.sums["train" if model.training else "eval"].add_total("padding", empty, columns)
                return scores, dict(picked)
            except NonFiniteError as error:
                inputs = self._left_out(model, inputs, error)
        return None, inputs

    def _coupled(self, scores: Scores | None, inputs: dict[str, Tensor], *, training: bool) -> Step | None:
        """The loss of a batch that is compared with those of other ranks; None when this rank has no row.

        Raises: `RunError` when a loss is not finite: it may be another row's doing, so none can be left out.
        """
        context = self.context(inputs["weight"], training=training)
        if training and context.gather.total == 0:  # type: ignore[attr-defined]  # RankGather
            return None
        if training:
            self._say_narrow(context.gather.counts)  # type: ignore[attr-defined]
        taken = nothing(inputs, self.objective.needs) if scores is None else scores
        try:
            out = evaluated(self.objective, taken, context)
        except NonFiniteError as error:
            names = describe_rows(inputs, error.rows, self.row_name)
            raise RunError(f"step {self.state.global_step + 1}: {error} Rows: {names}.") from None
        if training and out.state is not None:
            self.loss_state = {**(self.loss_state or {}), **out.state}
        return None if scores is None else Step(out, scores)

    def context(self, weight: Tensor, *, training: bool) -> StepContext:
        """What a batch-coupled loss is told about a batch with these weights `[b]`. Collective in training."""
        return StepContext(
            gather=RankGather(weight) if training else Gather(),
            draw=self._draw,
            state=self.loss_state,
            step=self.state.global_step,
            total_steps=max(self.state.max_steps, 1),
            training=training,
        )

    @property
    def _draw(self) -> Draw:
        return Draw(seed=self.args.seed, step=self.state.global_step)

    @torch.no_grad()
    def _window(self, batches: list[Any]) -> list[Any]:
        """The micro-batches of one step, each with the derivatives of the loss that saw all of them."""
        model = self.model_wrapped
        model.train()  # DeepSpeed's returns nothing
        found = []
        with self.compute_loss_context_manager():
            for batch in batches:
                found.append(self._scores(model, self._prepare_inputs(batch)))
        parts = [
            (nothing(inputs, self.objective.needs) if scores is None else scores, inputs) for scores, inputs in found
        ]
        weights = [inputs["weight"] for _, inputs in parts]
        context = self.context(torch.cat(weights), training=True)
        if context.gather.total == 0:  # type: ignore[attr-defined]  # RankGather
            return [{PREPARED: torch.ones(())} for _ in parts]
        self._say_narrow(context.gather.counts)  # type: ignore[attr-defined]
        whole = linearized([scores for scores, _ in parts], weights, self.objective, context)
        out = whole.out
        if not torch.isfinite(out.losses).all():
            raise RunError(f"training, step {self.state.global_step + 1}: the loss of the step is not finite.")
        if out.state is not None:
            self.loss_state = {**(self.loss_state or {}), **out.state}
        if len(whole.scores.mask):
            tokens = torch.cat([inputs["attention_mask"].sum((1, 2)) for _, inputs in parts])
            together = {"weight": torch.cat(weights), "attention_mask": tokens.view(-1, 1, 1)}
            self._add_metrics("train", Step(out, whole.scores), together, whole.slopes)
        slopes = whole.parts
        return [{**inputs, **slope, PREPARED: torch.ones(())} for (_, inputs), slope in zip(parts, slopes, strict=True)]

    def _say_narrow(self, counts: Sequence[int]) -> None:
        """Say once that a loss which compares prompts was shown too few; `counts` are the prompts of each rank."""
        for loss in self.objective.losses:
            shown = counts[self.args.process_index] if loss.spec.window_per_rank(loss.params) else sum(counts)
            if shown < loss.window and loss.name not in self._said_narrow:
                self._said_narrow.add(loss.name)
                logger.warning(
                    "step %d shows loss '%s' %d prompt(s), fewer than it can compare: there it is no more than its "
                    "plain relative. So ends an epoch whose rows do not fill its last batch "
                    "(training.dataloader_drop_last leaves that out), and so come long rows with a small "
                    "scoring.tokens_per_batch. Said once, and true of every such step.",
                    self.state.global_step + 1,
                    loss.name,
                    shown,
                )

    def _replayed(self, model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        """A number with the gradient of this micro-batch's rows in the loss of the whole step."""
        if not len(inputs.get("ids", ())):
            return nothing_lost(model, self.args.device)
        wanted = {Need.KL} if DERIVATIVES["kl"] in inputs else set()
        known = self.reference(inputs, distributions=True) if wanted else None
        stats = self.scorer(model, inputs, wanted=wanted, reference=None if known is None else known.distributions)
        return surrogate(stats, inputs)

    def _left_out(self, model: nn.Module, inputs: dict[str, Tensor], error: NonFiniteError) -> dict[str, Tensor]:
        """The batch without the rows of the error, which are counted, or the end of the run."""
        self._stop_or_leave_out(model, inputs, error)
        sums = self.sums["train" if model.training else "eval"]
        sums.add_total(_SKIPPED, torch.tensor(len(error.rows)), torch.ones(()))
        return without_rows(inputs, error.rows)

    def _stop_or_leave_out(self, model: nn.Module, inputs: dict[str, Tensor], error: NonFiniteError) -> None:
        names = describe_rows(inputs, error.rows, self.row_name)
        where = "training" if model.training else "evaluation"
        text = f"{where}, step {self.state.global_step + 1}: {error} Rows: {names}."
        broken = next((n for n, p in causal_model(model).named_parameters() if not torch.isfinite(part(p)).all()), None)
        if broken is not None:
            raise RunError(
                f"{text} The weights themselves are not finite, first '{broken}'; no row can be scored."
            ) from None
        if self.nonfinite == "stop":
            raise RunError(
                f"{text} The optimizer has not moved. `safety.nonfinite: skip` leaves such rows out."
            ) from None
        logger.warning("%s Left out.", text)
        self.skipped.extend(self.row_name(int(inputs["ids"][row])) for row in error.rows)

    def row_name(self, index: int) -> str:
        """The id of a row of the set in use by its number, for messages."""
        try:
            return str(self._named_rows[index]["id"])  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return f"number {index}"

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[None, None, None]:
        """Adds the batch to the evaluation's sums. Nothing is returned: means of batch means are not means."""
        with torch.no_grad(), self.compute_loss_context_manager():
            self.compute_loss(model, self._prepare_inputs(inputs))
        return None, None, None

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> EvalLoopOutput:
        """Evaluation whose numbers do not depend on batch size or rank count."""
        self.sums["eval"] = MetricSums()
        rows = (args[0] if args else kwargs["dataloader"]).dataset.rows
        self._named_rows = rows
        try:
            output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        finally:
            self._named_rows = self.train_dataset
        found = self._drained("eval")[0]
        if self.row_evaluation is not None:
            found |= self.row_evaluation(self, rows, metric_key_prefix)
        assert output.metrics is not None
        output.metrics.update({f"{metric_key_prefix}_{name}": value for name, value in found.items()})
        return output

    # records

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the metrics of every row since the last time, and write the line to `metrics.jsonl`."""
        if "loss" in logs:
            del logs["loss"]  # a mean of steps, and 0 where every row was left out; ours is the mean over rows
            logs |= self._training_metrics()
        super().log(logs, start_time)
        if self.run is not None and self.is_world_process_zero():
            self.run.append_metrics({"step": self.state.global_step, **logs})

    def _training_metrics(self) -> dict[str, float]:
        found, tokens = self._drained("train")
        now = time.monotonic()
        seconds, self._last_log = max(now - self._last_log, 1e-9), now
        self.tokens_seen += tokens
        return {**found, "num_tokens": self.tokens_seen, "tokens_per_second": round(tokens / seconds, 1)}

    def pending(self) -> dict[str, Any]:
        """What a checkpoint keeps so that a resumed run logs what an undisturbed one does. Collective."""
        sums = self.sums["train"].totals(self.sum_over_ranks, names=self._names("train"), device=self.args.device)
        return {"num_tokens": self.tokens_seen, "sums": {name: list(pair) for name, pair in sums.items()}}

    def restore(self, pending: Mapping[str, Any]) -> None:
        """Continue from what `pending` said; the sums of all ranks go to the first one."""
        self.tokens_seen = int(pending["num_tokens"])
        if self.is_world_process_zero():
            for name, (total, count) in pending["sums"].items():
                device = self.args.device
                dtype = torch.float32 if device.type == "mps" else torch.float64
                exact = torch.tensor([total, count], dtype=dtype, device=device)
                self.sums["train"].add_total(name, *exact)

    def _names(self, which: Literal["train", "eval"]) -> list[str] | None:
        # a rank whose rows were all left out, or were all single, knows fewer names
        return sorted(set(gather_object(self.sums[which].names))) if self.args.world_size > 1 else None

    def _drained(self, which: Literal["train", "eval"]) -> tuple[dict[str, float], int]:
        sums = self.sums[which].drain(self.sum_over_ranks, names=self._names(which), device=self.args.device)
        tokens, _ = sums.pop(_TOKENS, (0.0, 0.0))
        skipped, _ = sums.pop(_SKIPPED, (0.0, 0.0))
        return means(sums) | ({"skipped_rows": skipped} if skipped else {}), int(tokens)


def nothing_lost(model: nn.Module, device: torch.device) -> Tensor:
    """Zero, with a gradient of zero: the backward pass must still run, because other ranks wait for it."""
    return sum((p.sum() * 0 for p in model.parameters() if p.requires_grad), torch.zeros((), device=device))
