"""What silently goes nowhere in other trainers, caught while it happens."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from prefopt.errors import RunError
from prefopt.train.sharding import part
from prefopt.train.sync import MoveReference

if TYPE_CHECKING:
    from prefopt.train.trainer import PreferenceTrainer

logger = logging.getLogger(__name__)

_STEPS_BEFORE_JUDGING = 5
_HALF = (torch.bfloat16, torch.float16)


class Guards(TrainerCallback):
    """Stops a run whose gradient is not finite or exactly zero, or whose policy never leaves the reference.

    Says when half-precision weights swallow their updates, and when the loss hardly leaves log 2.
    """

    def __init__(self, trainer: PreferenceTrainer) -> None:
        self.trainer = trainer
        self.updates = 0  # optimizer steps with a learning rate above zero, since the reference last moved
        self._sample: MovedSample | None = None
        self._said_log2 = False

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        model = self.trainer.model
        if args.world_size > 1 and self.trainer.model_wrapped is model and self.trainer.sharding is None:
            raise RunError(
                f"{args.world_size} processes would train without exchanging gradients: the model is not wrapped."
            )
        if any(p.requires_grad and p.dtype in _HALF for p in model.parameters()):
            self._sample = MovedSample(model)
            logger.warning(
                "trained weights are stored in half precision, which rounds small updates away; `weights/moved` in the "
                "metrics is the share of weights that an update changed. `model.dtype: float32` with "
                "`training.bf16: true` keeps them."
            )

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self._sample is not None:
            self._sample.remember()
        if self.trainer.is_deepspeed_enabled or args.fp16:
            return  # DeepSpeed keeps the gradients to itself; the scaler of fp16 skips such steps by design
        total = float(_gradient_norms(self.trainer))
        if not math.isfinite(total):
            raise RunError(
                f"training, step {state.global_step + 1}: the gradient is not finite although the loss is. "
                "The optimizer has not moved. Lower training.learning_rate, or look at the rows with `prefopt preview`."
            )
        if total == 0 and self.updates == 0:
            raise RunError(
                f"training, step {state.global_step + 1}: the gradient is exactly 0, so nothing would be learned. "
                "Either both responses give the same tokens, or the trainable parameters do not reach the loss."
            )

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self._sample is not None:
            moved, count = self._sample.compare()
            self.trainer.sums["train"].add_total("weights/moved", moved, count)
        # here the optimizer still holds the rate of the step it just took
        rates = [group["lr"] for group in self.trainer.optimizer.param_groups]
        self.updates += max(rates, default=0.0) > 0

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.global_step >= state.max_steps:  # also when it is no multiple of logging_steps
            control.should_log = True
        if any(isinstance(one, MoveReference) and one.moved for one in self.trainer.callback_handler.callbacks):
            self.updates = 0  # policy and reference may be equal again

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        logs = logs or {}
        delta, moved = logs.get("displacement/chosen_delta"), logs.get("displacement/rejected_delta")
        if "loss" not in logs or self.updates < _STEPS_BEFORE_JUDGING or delta is None:
            return
        if delta == 0 and moved == 0 and logs.get("rewards/ties") == 1:
            raise RunError(
                f"after {state.global_step} steps the policy still equals the reference in every log-probability. "
                "The weights do not move (half-precision storage at a small learning rate rounds every update away), "
                "or the reference moves with them."
            )
        if abs(logs["loss"] - math.log(2)) < 1e-4 and self.updates >= 20 and not self._said_log2:
            self._said_log2 = True
            logger.warning(
                "after %d steps the loss is still log 2 to four digits: the policy has hardly left the reference. "
                "Raise training.learning_rate (now at most %g) or train longer.",
                state.global_step,
                args.learning_rate,
            )


def _gradient_norms(trainer: PreferenceTrainer) -> Tensor:
    gradients = [part(p.grad) for p in trainer.model.parameters() if p.grad is not None]
    total = torch.zeros((), device=trainer.args.device)
    if gradients:
        total = torch.stack([norm.float() for norm in torch._foreach_norm(gradients)]).sum()
    return total if trainer.sharding is None else trainer.sum_over_ranks(total)


class MovedSample:
    """Up to 1,024 values of each trainable half-precision tensor, before and after an update."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad and p.dtype in _HALF]
        self.before: list[Tensor] = []

    def _values(self) -> list[Tensor]:
        flat = [part(p.detach()).reshape(-1) for p in self.parameters]
        return [v[:: max(1, v.numel() // 1024)].clone() for v in flat]

    def remember(self) -> None:
        """Keep the values as they are now."""
        self.before = self._values()

    def compare(self) -> tuple[Tensor, Tensor]:
        """How many of the kept values have changed, and how many there are."""
        pairs = list(zip(self.before, self._values(), strict=True))
        moved = torch.stack([(a != b).sum() for a, b in pairs]).sum()
        return moved, torch.tensor(float(sum(a.numel() for a, _ in pairs)), device=moved.device)
