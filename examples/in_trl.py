"""A prefopt loss inside TRL's DPOTrainer: one method overridden.

    python examples/in_trl.py

TRL reads the data, keeps the reference and runs the training; the loss comes from the registry.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

from prefopt import Scores, get_loss
from prefopt.demo import demo_model_path
from prefopt.losses import Loss
from prefopt.scoring import token_logps

PAIRS = Path(__file__).parent.parent / "recipes" / "data" / "tiny-math" / "pairs.jsonl"


class RegistryTrainer(DPOTrainer):
    """DPOTrainer with any per-pair loss of the registry in place of its own."""

    objective: Loss = get_loss("dpop", beta=0.1, lam=5.0)

    def compute_loss(
        self, model: Any, inputs: dict[str, torch.Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """TRL's batch is every chosen response, then every rejected one."""
        model_inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        labels, mask = inputs["input_ids"][:, 1:], inputs["completion_mask"][:, 1:].bool()

        def pairs(values: torch.Tensor) -> torch.Tensor:
            return torch.stack(values.chunk(2), dim=1)  # [2B, T] -> [B, 2, T]

        policy = token_logps(model(**model_inputs).logits[:, :-1], labels)
        with torch.no_grad():
            reference = token_logps(self.ref_model(**model_inputs).logits[:, :-1], labels)
        out = self.objective(Scores(policy=pairs(policy), reference=pairs(reference), mask=pairs(mask)))
        metrics = self._metrics["train" if model.training else "eval"]
        metrics["rewards/margins"].append((out.rewards[:, 0] - out.rewards[:, 1]).mean().item())
        for name, value in out.metrics.items():
            metrics[name].append(value.mean().item())
        return out.losses.mean()


def train(
    trainer_class: type[DPOTrainer] = RegistryTrainer, *, steps: int = 8, **options: Any
) -> list[dict[str, float]]:
    """What TRL logged at each step."""
    folder = demo_model_path("demo:tiny-math")
    rows = [json.loads(line) for line in PAIRS.read_text().splitlines()]
    kept = Dataset.from_list([{key: row[key] for key in ("prompt", "chosen", "rejected")} for row in rows])
    with tempfile.TemporaryDirectory() as output:
        settings = {
            "max_steps": steps,
            "learning_rate": 3e-5,
            "logging_steps": 1,
            "report_to": "none",
            "save_strategy": "no",
        }
        trainer = trainer_class(
            model=AutoModelForCausalLM.from_pretrained(folder),
            args=DPOConfig(output, use_cpu=True, bf16=False, disable_tqdm=True, **settings, **options),
            train_dataset=kept,
            processing_class=AutoTokenizer.from_pretrained(folder),
        )
        trainer.train()
    return [line for line in trainer.state.log_history if "loss" in line]


if __name__ == "__main__":
    for line in train():
        margin, shortfall = line["rewards/margins"], line["dpop/shortfall"]
        print(f"loss {line['loss']:.4f}  margin {margin:+.4f}  shortfall {shortfall:.3f} nats")
