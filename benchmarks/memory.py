"""`prefopt estimate` against what training then takes on this machine's CPU.

    python benchmarks/memory.py [--only full,bfloat16,adapter,checkpointing,cached,vocabulary]

Each case is a recipe over a model of 56 M parameters with random weights (width 512, 8 layers) and pairs of about 250
prompt and 60 response tokens, eight a step. Printed are estimate and measurement in MiB and their ratio. Measured is
the peak resident memory of a process of its own that trains three steps, beyond what it held before the model was
loaded; `vocabulary` has 256,000 entries instead of 32,000. The process gives freed memory back to the system at once
(MALLOC_MMAP_THRESHOLD_), so that its peak is what the run needs. Left alone, glibc keeps much of what was freed for
later; `kept` is the peak with that.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "bfloat16": {"training": {"bf16": True}},
    "adapter": {"model": {"adapter": {"r": 16}}, "training": {"learning_rate": 1e-4}},
    "checkpointing": {"training": {"gradient_checkpointing": True}},
    "cached": {"reference": {"cache": "cache"}},
    "vocabulary": {"loss": {"name": "simpo"}},
}
MIB = 2**20


def model(folder: Path, vocabulary: int) -> None:
    """Random weights and a tokenizer with one token per byte."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 512, "num_hidden_layers": 8, "intermediate_size": 1408, "vocab_size": vocabulary}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": False}
    Qwen2ForCausalLM(Qwen2Config(**sizes, **heads)).save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<pad>", "<end>"])
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", pad_token="<pad>").save_pretrained(folder)


def pairs(path: Path, count: int = 24) -> None:
    """Random letters, lengths varying by a third."""
    chance = random.Random(0)

    def text(mean: int) -> str:
        return "".join(chance.choices("abcdefgh ", k=chance.randint(2 * mean // 3, 4 * mean // 3)))

    rows = [{"prompt": text(250), "chosen": " " + text(60), "rejected": " " + text(60)} for _ in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def recipe(folder: Path, changes: dict[str, Any]) -> Path:
    """A recipe file."""
    tree: dict[str, Any] = {
        "model": {"name_or_path": str(folder / "model")},
        "data": {"train": "pairs.jsonl"},
        "loss": {"name": "dpo"},
        "training": {
            "output_dir": "run",
            "use_cpu": True,
            "max_steps": 3,
            "per_device_train_batch_size": 8,
            "save_strategy": "no",
            "disable_tqdm": True,
        },
    }
    for name, values in changes.items():
        tree[name] = tree.get(name, {}) | values
    (folder / "recipe.json").write_text(json.dumps(tree))
    return folder / "recipe.json"


def child(path: Path) -> None:
    """Estimate, or train and say what it took beyond the libraries and the data."""
    from prefopt import load_recipe, train
    from prefopt.train.build import prepare, training_arguments
    from prefopt.train.model import load_tokenizer

    found = load_recipe(path)
    prepare(found, load_tokenizer(found.model.name_or_path), found.objective(), training_arguments(found))
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    train(found, overwrite=True)
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before))


RETURNED = {"MALLOC_MMAP_THRESHOLD_": str(256 * 1024), "MALLOC_TRIM_THRESHOLD_": "0"}


def run(*arguments: str, environment: dict[str, str] | None = None) -> Any:
    """The last line that a command printed, as JSON."""
    every = {**os.environ, **(environment or {})}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=every)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Print a line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CASES), help="cases, separated by commas")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        return child(options.child)
    print(f"{'case':14} {'estimate':>9} {'measured':>9} {'ratio':>6} {'kept':>9}   MiB", flush=True)
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            model(folder / "model", 256_000 if name == "vocabulary" else 32_000)
            pairs(folder / "pairs.jsonl")
            path = str(recipe(folder, CASES[name]))
            if name == "cached":
                run("-m", "prefopt", "reference", path, "--json")
            estimated = run("-m", "prefopt", "estimate", path, "--json")["total"] / MIB
            measured = run(__file__, "--child", path, environment=RETURNED) / MIB
            kept = run(__file__, "--child", path) / MIB
        print(f"{name:14} {estimated:9.0f} {measured:9.0f} {estimated / measured:6.2f} {kept:9.0f}", flush=True)


if __name__ == "__main__":
    main()
