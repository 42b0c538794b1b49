"""Memory is estimated from the run's own first steps, without loading a weight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from prefopt.cli import main
from prefopt.errors import ConfigError
from prefopt.scoring.chunked import chunk_tokens
from prefopt.train.estimate import Estimate, estimate
from tests.train.folder import model_folder, recipe
from tests.train.test_run import weights

ADAPTER = {"r": 4, "target_modules": ["q_proj", "v_proj"]}


def estimated(folder: Path, adapter: dict[str, Any] | None = None, world: int = 1, **sections: Any) -> Estimate:
    model = {"name_or_path": str(folder / "model"), "adapter": adapter}
    sharding = sections.pop("sharding", "none")
    return estimate(recipe(folder, model=model, **sections), world=world, sharding=sharding)


def stored(folder: Path) -> int:
    return sum(value.numel() * value.element_size() for value in weights(folder / "model").values())


def test_full_training_holds_two_models_one_gradient_and_two_moments(tmp_path: Path) -> None:
    found = estimated(tmp_path)
    size = stored(tmp_path)
    assert found.weights == pytest.approx(size, rel=0.01)
    assert found.reference == found.gradients == size
    assert found.optimizer == pytest.approx(2 * size, rel=0.01)
    assert found.computation > 0
    assert found.total == size + found.weights + found.gradients + found.optimizer + found.computation


def test_no_weight_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe(tmp_path)
    (tmp_path / "model" / "model.safetensors").unlink()
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    model = {"name_or_path": str(tmp_path / "model"), "adapter": ADAPTER}
    assert estimate(recipe(tmp_path, model=model)).total > 0


def test_there_is_no_second_model_where_none_is_needed(tmp_path: Path) -> None:
    assert estimated(tmp_path, ADAPTER).reference == 0
    assert estimated(tmp_path, reference={"cache": "somewhere"}).reference == 0
    assert estimated(tmp_path, loss={"name": "simpo"}).reference == 0
    moving = estimated(tmp_path, ADAPTER, reference={"sync": {"every": 9}})
    assert moving.reference == moving.gradients > 0


def test_an_adapter_has_small_gradients_and_moments(tmp_path: Path) -> None:
    found = estimated(tmp_path, ADAPTER)
    assert found.gradients == 2 * 2 * 4 * (32 + 32 + 32 + 16) * 4 / 2  # layers, r, in + out of q_proj and v_proj, bytes
    assert found.optimizer == pytest.approx(2 * found.gradients, rel=0.01)


def test_checkpointing_smaller_batches_and_another_optimizer_take_less(tmp_path: Path) -> None:
    plain = estimated(tmp_path)
    assert estimated(tmp_path, training={"gradient_checkpointing": True}).computation < plain.computation
    assert estimated(tmp_path, training={"per_device_train_batch_size": 1}).computation < plain.computation / 2
    assert estimated(tmp_path, training={"optim": "sgd"}).optimizer == 0
    accumulated = estimated(tmp_path, training={"gradient_accumulation_steps": 4})
    assert accumulated.total > plain.total - plain.gradients
    halved = estimated(tmp_path, training={"bf16": True})
    assert halved.reference < plain.reference


def test_devices_share_what_is_sharded_and_exchange_what_is_not(tmp_path: Path) -> None:
    alone, four = estimated(tmp_path), estimated(tmp_path, world=4)
    assert four.exchange == four.gradients == alone.gradients
    sharded = estimated(tmp_path, world=4, sharding="zero2")
    assert (sharded.gradients, sharded.optimizer) == (alone.gradients // 4, (alone.optimizer or 0) // 4)


@pytest.mark.parametrize("sharding", ["zero3", "fsdp"])
def test_weights_that_are_shared_out_stand_whole_one_unit_at_a_time(tmp_path: Path, sharding: str) -> None:
    alone, four = estimated(tmp_path), estimated(tmp_path, world=4, sharding=sharding)
    for part in ("weights", "reference", "gradients", "optimizer"):
        assert getattr(four, part) == getattr(alone, part) // 4
    assert 0 < four.exchange < alone.weights + alone.gradients, "not the whole model"
    frozen = estimated(tmp_path, ADAPTER, world=4, sharding=sharding)
    assert four.exchange / 2 <= frozen.exchange < four.exchange, "frozen weights have no gradient to be gathered"


def test_an_optimizer_that_is_not_torchs_is_said_and_not_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert estimated(tmp_path, training={"optim": "adafactor"}).optimizer is None
    assert "the memory of training.optim adafactor is not known and not counted" in caplog.text


def test_memory_does_not_grow_with_the_vocabulary_beyond_weights_and_a_chunk(tmp_path: Path) -> None:
    """96 rows of the byte tokenizer: more scored tokens than a chunk of 256,000 entries holds."""
    found = {}
    for size in (32_000, 256_000):
        folder = tmp_path / str(size)
        folder.mkdir()
        model_folder(folder / "model", vocab_size=size)
        rows = [{"prompt": f"{n} =", "chosen": " a" * 60 + str(n), "rejected": " b" * 60 + str(n)} for n in range(8)]
        (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        found[size] = estimated(folder, loss={"name": "simpo"}, training={"per_device_train_batch_size": 8})
    chunk = 4 * 256_000 * chunk_tokens(256_000)
    assert 10 * chunk < 8 * 2 * 120 * 256_000 * 4, "the logits of the batch would be much more"
    assert found[256_000].computation - found[32_000].computation < 1.5 * chunk


@pytest.mark.parametrize("kind", ["Gemma, sliding", "GPT-2", "mixture of experts"])
def test_other_kinds_of_models(tmp_path: Path, kind: str) -> None:
    import transformers as hf

    from tests.train.folder import tokenizer

    sizes: dict[str, Any] = {"vocab_size": 272}
    made: dict[str, Any] = {
        "Gemma, sliding": lambda: hf.Gemma3ForCausalLM(
            hf.Gemma3TextConfig(**sizes, hidden_size=32, intermediate_size=64, num_hidden_layers=2, head_dim=8,
                                num_attention_heads=4, num_key_value_heads=2, sliding_window=8)
        ),
        "GPT-2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, n_embd=32, n_layer=2, n_head=4, n_positions=256)),
        "mixture of experts": lambda: hf.Qwen3MoeForCausalLM(
            hf.Qwen3MoeConfig(**sizes, hidden_size=32, intermediate_size=64, moe_intermediate_size=32, num_experts=4,
                              num_experts_per_tok=2, num_hidden_layers=2, num_attention_heads=4,
                              num_key_value_heads=2, head_dim=8)
        ),
    }  # fmt: skip
    torch.manual_seed(0)
    made[kind]().save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    found = estimated(tmp_path)
    assert found.weights >= stored(tmp_path)
    assert found.computation > 0


def test_the_command_prints_every_part_and_the_total(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe(tmp_path)
    assert main(["estimate", str(tmp_path / "recipe.json")]) == 0
    text = capsys.readouterr().out
    for part in ("weights", "reference", "gradients", "optimizer", "activations, head, temporary values", "total"):
        assert part in text
    assert "on one device, at the largest micro-batch of the first epoch (4 rows," in text
    assert main(["estimate", str(tmp_path / "recipe.json"), "--sharding", "zero2"]) == 2
    assert "say how many with --world" in capsys.readouterr().err
    assert main(["estimate", str(tmp_path / "recipe.json"), "--sharding", "zero9", "--world", "2"]) == 2
    assert "--sharding is one of none, zero2, zero3, fsdp; got 'zero9'" in capsys.readouterr().err


@pytest.mark.parametrize("layout", ["separate", "shared_prefix"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("backend", ["auto", "plain"])
def test_every_arrangement_is_estimated(tmp_path: Path, layout: str, attention: str, backend: str) -> None:
    model = {"name_or_path": str(tmp_path / "model"), "attn_implementation": attention}
    assert estimate(recipe(tmp_path, model=model, scoring={"layout": layout, "backend": backend})).computation > 0


def test_what_cannot_be_built_is_said(tmp_path: Path) -> None:
    model = {"name_or_path": str(tmp_path / "model"), "attn_implementation": "flash_attention_2"}
    with pytest.raises(ConfigError, match=r"model.attn_implementation: "):
        estimate(recipe(tmp_path, model=model))
    with pytest.raises(ConfigError, match=r"model.adapter.start: "):
        estimated(tmp_path, {"mode": "continue", "start": str(tmp_path / "nowhere")})
