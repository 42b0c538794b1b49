"""A random two-layer model and synthetic rows: real shapes, no files, no downloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

VOCABULARY = 97


def tiny_model(*, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> LlamaForCausalLM:
    """Two layers of width 32, untied unless told otherwise."""
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    config = LlamaConfig(
        **{**sizes, **heads, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, **changes}
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).to(dtype)


def tiny_rows(count: int, *, seed: int = 0, responses: int = 2) -> list[dict[str, Any]]:
    """Rows with prompts of 3 to 8 tokens and responses of 1 to 10, no two alike."""
    generator = torch.Generator().manual_seed(seed)

    def ids(low: int, high: int) -> list[int]:
        length = int(torch.randint(low, high, (), generator=generator))
        return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()

    rows = []
    for number in range(count):
        prompt, answers = [1, *ids(2, 8)], [[*ids(0, 10), 2] for _ in range(responses)]
        longest = len(prompt) + max(map(len, answers))
        masks = [[True] * len(answer) for answer in answers]
        rows.append(
            {"id": f"row-{number}", "prompt_ids": prompt, "responses": answers, "masks": masks, "length": longest}
        )
    return rows


def arguments(folder: Path, **changes: Any) -> TrainingArguments:
    """Quiet CPU settings: every step logged, nothing saved, a constant rate that moves the weights visibly."""
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "learning_rate": 1e-4,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 4,
        "max_steps": 4,
    }
    return TrainingArguments(**{**settings, **changes})


def flat(model: torch.nn.Module) -> torch.Tensor:
    """Every parameter in one vector."""
    return torch.cat([p.detach().double().flatten() for p in model.parameters()])


def history(trainer: Any, name: str = "loss") -> list[float]:
    """The logged values of one training metric."""
    return [line[name] for line in trainer.state.log_history if "loss" in line and name in line]


def rows_of_which_one_holds(token: int, *, count: int = 8) -> list[dict[str, Any]]:
    """Rows of which only number 3 has this token, in its rejected response."""
    rows = tiny_rows(count)
    for row in rows:
        row["responses"] = [[5 if t == token else t for t in ids] for ids in row["responses"]]
        row["prompt_ids"] = [5 if t == token else t for t in row["prompt_ids"]]
    rows[3]["responses"][1] = [token, *rows[3]["responses"][1]]
    rows[3]["masks"][1] = [True, *rows[3]["masks"][1]]
    rows[3]["length"] += 1
    return rows


def bad_row_model() -> Any:
    """A model that gives NaN from token 96 on."""
    model = tiny_model()
    embed = model.model.embed_tokens.forward

    def poisoned(input_ids: Any) -> Any:
        return embed(input_ids).masked_fill((input_ids == 96).unsqueeze(-1), torch.nan)

    model.model.embed_tokens.forward = poisoned
    return model
