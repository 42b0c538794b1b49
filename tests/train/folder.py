"""A model folder and a recipe, small enough to train in a second: a byte-level tokenizer and a random model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from prefopt.config import Recipe, load_recipe
from tests.train.tiny import tiny_model

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.role == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    + ("{% if add_generation_prompt %}<|assistant|>{% endif %}")
)


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, with end, padding and role tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>"]
    backend.add_special_tokens([AddedToken(word, normalized=False) for word in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>", chat_template=TEMPLATE
    )


def model_folder(path: Path, *, seed: int = 0, **changes: Any) -> Path:
    """A folder that `from_pretrained` reads."""
    words = tokenizer()
    sizes = {"vocab_size": 272, "max_position_embeddings": 256, "eos_token_id": words.eos_token_id, "pad_token_id": 0}
    tiny_model(seed=seed, **{**sizes, **changes}).save_pretrained(path)
    words.save_pretrained(path)
    return path


def pairs(path: Path, count: int = 12, **columns: Any) -> Path:
    """Sums, right and off by one, as JSONL."""
    rows = [
        {
            "id": f"sum-{n}",
            "prompt": f"{n} + {n + 1} =",
            "chosen": f" {2 * n + 1}",
            "rejected": f" {2 * n + 2}",
            "answer": str(2 * n + 1),
        }
        for n in range(count)
    ]
    path.write_text("".join(json.dumps({**row, **columns}) + "\n" for row in rows))
    return path


def recipe(folder: Path, changes: dict[str, Any] | None = None, **sections: Any) -> Recipe:
    """A recipe in `folder` with its model and data beside it."""
    if not (folder / "model").exists():
        model_folder(folder / "model")
    if not (folder / "pairs.jsonl").exists():
        pairs(folder / "pairs.jsonl")
    tree = {
        "model": {"name_or_path": str(folder / "model")},
        "data": {"train": "pairs.jsonl"},
        "loss": {"name": "dpo"},
        "training": {
            "output_dir": "run",
            "use_cpu": True,
            "max_steps": 4,
            "logging_steps": 1,
            "learning_rate": 1e-3,
            "per_device_train_batch_size": 4,
            "save_strategy": "no",
            "disable_tqdm": True,
        },
    }
    for name, values in sections.items():
        tree[name] = {**tree.get(name, {}), **values} if isinstance(values, dict) else values
    (folder / "recipe.json").write_text(json.dumps(tree))
    return load_recipe(folder / "recipe.json", changes or {})
