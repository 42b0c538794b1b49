"""TRL's DPOTrainer against prefopt: time and peak memory of training, side by side.

    python benchmarks/vs_trl.py [--workload chat,long,step,negatives] [--precision float32,bfloat16] [--repeats 3]
                                [--device cpu]

Same model (56 M parameters, Qwen2-shaped, random weights), same rows, same precision, same pairs per optimizer step,
AdamW on both sides. Every measurement is a process of its own; the two alternate, so that a noisy machine disturbs both
alike. What counts are the ratios: seconds per optimizer step, TRL over prefopt, and peak resident memory beyond the
libraries' own, prefopt over TRL; median, smallest and largest over the repeats. bfloat16 means autocast over float32
weights on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from typing import Any

VOCABULARY, WARM_UP = 32_000, 1


@dataclass(frozen=True)
class Workload:
    """Mean lengths in tokens, which vary by `spread`; rejected responses per prompt; prompts per step."""

    prompt: int
    response: int
    rejected: int = 1
    batch: int = 4
    spread: float = 0.35


WORKLOADS = {
    "chat": Workload(256, 64),
    "long": Workload(64, 256),
    "step": Workload(384, 24),
    "negatives": Workload(256, 48, rejected=8, batch=1),
}


def rows(load: Workload, count: int) -> list[dict[str, Any]]:
    """Token ids of prompts and responses, the same for both sides."""
    chance = random.Random(0)

    def ids(mean: int) -> list[int]:
        low, high = round(mean * (1 - load.spread)), round(mean * (1 + load.spread))
        return [chance.randrange(10, VOCABULARY) for _ in range(chance.randint(low, high))]

    return [
        {"prompt": ids(load.prompt), "responses": [ids(load.response) for _ in range(1 + load.rejected)]}
        for _ in range(count)
    ]


def model() -> Any:
    """56 million parameters: width 512, 8 layers, 8 heads, 4 key-value heads, MLP 1,408, untied."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 512, "num_hidden_layers": 8, "intermediate_size": 1408, "vocab_size": VOCABULARY}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": False}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, **heads, bos_token_id=1, eos_token_id=2, pad_token_id=0))


def arguments(folder: str, load: Workload, precision: str, steps: int, device: str = "cpu") -> dict[str, Any]:
    """Training arguments that both trainers are given."""
    return {
        "output_dir": folder,
        "use_cpu": device == "cpu",
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "learning_rate": 1e-6,
        "lr_scheduler_type": "constant",
        "max_steps": steps,
        "per_device_train_batch_size": load.batch,
        "bf16": precision == "bfloat16",
        "gradient_checkpointing": False,
        "train_sampling_strategy": "sequential",
    }


class Clock:
    """Seconds between the end of the warm-up and the end of training."""

    def __init__(self) -> None:
        import torch
        from transformers import TrainerCallback

        clock = self
        self.warm_up = 3 if torch.cuda.is_available() else WARM_UP  # a GPU starts its libraries up
        self.ends: list[float] = []

        class Ticks(TrainerCallback):
            def on_step_end(self, *_: Any, **__: Any) -> None:
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                clock.ends.append(time.perf_counter())

        self.callback = Ticks()

    def per_step(self) -> float:
        return (self.ends[-1] - self.ends[self.warm_up - 1]) / (len(self.ends) - self.warm_up)


def prepared(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as prefopt's trainer takes them."""
    return [
        {
            "id": str(number),
            "prompt_ids": row["prompt"],
            "responses": row["responses"],
            "masks": [[True] * len(ids) for ids in row["responses"]],
            "length": len(row["prompt"]) + max(map(len, row["responses"])),
        }
        for number, row in enumerate(data)
    ]


def loss_on(responses: int) -> Any:
    """DPO, or with several rejected responses MC-PO on all of them: every one counts, as so many pairs do."""
    from prefopt import get_loss

    if responses == 2:
        return get_loss("dpo")
    loss = get_loss("mc_po", num_negatives=responses - 1, sampling="argmax")
    return replace(loss, spec=replace(loss.spec, select=None))


def ours(data: list[dict[str, Any]], settings: dict[str, Any], reference: Any = None) -> float:
    """Seconds per step of prefopt, with a live reference unless another is given."""
    from transformers import TrainingArguments

    from prefopt import PreferenceTrainer

    clock = Clock()
    trainer = PreferenceTrainer(
        model(),
        TrainingArguments(**settings),
        objective=loss_on(len(data[0]["responses"])),
        train_dataset=prepared(data),
        reference=reference,
        callbacks=[clock.callback],
    )
    trainer.train()
    return clock.per_step()


def theirs(data: list[dict[str, Any]], settings: dict[str, Any]) -> float:
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import DPOConfig, DPOTrainer

    words = {f"w{number}": number for number in range(VOCABULARY)}
    backend = Tokenizer(models.WordLevel(words, unk_token="w3"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="w2", pad_token="w0", bos_token="w1")
    pairs = [
        {"prompt_ids": row["prompt"], "chosen_ids": row["responses"][0], "rejected_ids": rejected}
        for row in data
        for rejected in row["responses"][1:]
    ]

    class Tokenized(DPOTrainer):
        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

    clock, policy = Clock(), model()
    pairs_per_step = settings["per_device_train_batch_size"] * (len(data[0]["responses"]) - 1)
    changed = {**settings, "per_device_train_batch_size": pairs_per_step}
    trainer = Tokenized(
        model=policy,
        ref_model=model(),
        args=DPOConfig(**changed, max_length=None),
        train_dataset=Dataset.from_list(pairs),
        processing_class=tokenizer,
        callbacks=[clock.callback],
    )
    trainer.train()
    return clock.per_step()


def measure(side: str, name: str, precision: str, steps: int, device: str = "cpu") -> dict[str, float]:
    """Seconds per step and peak MiB in this process: resident beyond what the imports took, or allocated on the GPU."""
    import torch
    import transformers.trainer  # noqa: F401
    import trl  # noqa: F401

    import prefopt.train.trainer  # noqa: F401

    load = WORKLOADS[name]
    torch.set_num_threads(os.cpu_count() or 1)
    data = rows(load, load.batch * steps)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        settings = arguments(folder, load, precision, steps, device)
        seconds = (ours if side == "prefopt" else theirs)(data, settings)
    if device == "cuda":
        return {"seconds": seconds, "mebibytes": torch.cuda.max_memory_allocated() / 2**20}
    scale = 1024 if sys.platform != "darwin" else 1024**2
    return {"seconds": seconds, "mebibytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / scale}


def run(side: str, name: str, precision: str, steps: int, device: str = "cpu") -> dict[str, float]:
    command = [sys.executable, __file__, "--one", side, "--workload", name, "--precision", precision]
    done = subprocess.run(
        [*command, "--steps", str(steps), "--device", device], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{side}, {name}, {precision}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):5.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", default=",".join(WORKLOADS))
    parser.add_argument("--precision", default="float32,bfloat16")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="optimizer steps of a run, the first of them to warm up")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.workload, options.precision, options.steps, options.device)))
        return
    titles = f"{'time, TRL / prefopt':>24} {'memory, prefopt / TRL':>24} {'s/step':>7} {'TRL':>7}"
    print(f"{'workload':10} {'precision':9} {titles}")
    for name in options.workload.split(","):
        for precision in options.precision.split(","):
            pairs = [
                tuple(run(side, name, precision, options.steps, options.device) for side in ("trl", "prefopt"))
                for _ in range(options.repeats)
            ]
            faster = [trl["seconds"] / our["seconds"] for trl, our in pairs]
            smaller = [our["mebibytes"] / trl["mebibytes"] for trl, our in pairs]
            seconds = [statistics.median(side["seconds"] for side in sides) for sides in zip(*pairs, strict=True)]
            figures = f"{spread(faster):>24} {spread(smaller):>24} {seconds[1]:7.2f} {seconds[0]:7.2f}"
            print(f"{name:10} {precision:9} {figures}", flush=True)


if __name__ == "__main__":
    main()
