"""One row per prompt, with all its responses, says what one row per response says: for every kind of attention."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

from prefopt.data.collate import Collator
from prefopt.errors import ConfigError
from prefopt.scoring import Scorer
from prefopt.scoring.layout import separate, shared_prefix
from tests.train.tiny import VOCABULARY, tiny_model, tiny_rows

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.3,  # attention that matters, unlike that of a fresh model
}
PLAIN = {key: value for key, value in SIZES.items() if key not in ("num_key_value_heads",)}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": 0.3}
SMALL_HEADS = {"head_dim": 8, "attn_implementation": "eager"}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}

MODELS: dict[str, Callable[[], nn.Module]] = {
    "Llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES)),
    "Llama, eager": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES, attn_implementation="eager")),
    "Mistral, sliding": lambda: hf.MistralForCausalLM(hf.MistralConfig(**SIZES, sliding_window=4)),
    "Qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**SIZES)),
    "Qwen2, layer types": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**SIZES, **MIXED, use_sliding_window=True)),
    "Qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**SIZES, head_dim=8)),
    "Gemma 2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**SIZES, **SMALL_HEADS, **MIXED)),
    "Gemma 3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**SIZES, head_dim=8, **MIXED)),
    "Phi": lambda: hf.PhiForCausalLM(hf.PhiConfig(**SIZES)),
    "Phi-3": lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**SIZES)),
    "GPT-2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2)),
    "GPT-NeoX": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**PLAIN)),
    "OLMo 2": lambda: hf.Olmo2ForCausalLM(hf.Olmo2Config(**SIZES)),
    "SmolLM3": lambda: hf.SmolLM3ForCausalLM(hf.SmolLM3Config(**SIZES)),
    "Granite": lambda: hf.GraniteForCausalLM(hf.GraniteConfig(**SIZES)),
    "Cohere": lambda: hf.CohereForCausalLM(hf.CohereConfig(**SIZES)),
    "Mixtral, experts": lambda: hf.MixtralForCausalLM(
        hf.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)
    ),
    "Qwen3, experts": lambda: hf.Qwen3MoeForCausalLM(
        hf.Qwen3MoeConfig(**SIZES, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
    ),
}


def batch(count: int = 5, **options: Any) -> dict[str, torch.Tensor]:
    return Collator(0)(tiny_rows(count, **options))


def scored(model: nn.Module, data: dict[str, torch.Tensor], **options: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    weights = [p for p in model.parameters() if p.requires_grad]
    logps = Scorer(**options)(model, data).logps
    value = (logps * torch.arange(logps.numel()).view_as(logps).cos()).sum()
    slopes = torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)
    return logps.detach(), list(slopes)


@pytest.mark.parametrize("kind", MODELS)
def test_a_shared_prefix_gives_the_values_and_gradients_of_separate_rows(kind: str) -> None:
    torch.manual_seed(0)
    model, data = MODELS[kind]().eval(), batch(responses=3)
    expected, slopes = scored(model, data, layout="separate", backend="plain")
    for backend in ("plain", "chunked"):
        found, others = scored(model, data, layout="shared_prefix", backend=backend, chunk=7)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        for one, other in zip(others, slopes, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * float(other.abs().max().clamp(min=1)))


@pytest.mark.parametrize("kind", ["Llama", "Mistral, sliding", "Gemma 3"])
def test_responses_do_not_see_each_other(kind: str) -> None:
    torch.manual_seed(0)
    model, data = MODELS[kind]().eval(), batch(responses=3)
    before = Scorer(layout="shared_prefix")(model, data).logps.detach()
    changed = data["input_ids"].clone()
    for row, length in enumerate(data["prompt_lengths"].tolist()):
        changed[row, 0, length:] = (changed[row, 0, length:] + 11) % VOCABULARY
    after = Scorer(layout="shared_prefix")(model, {**data, "input_ids": changed}).logps.detach()
    torch.testing.assert_close(after[:, 1:], before[:, 1:])
    assert not torch.allclose(after[:, 0], before[:, 0])


@pytest.mark.parametrize("responses", [1, 2, 7])
def test_any_number_of_responses_and_missing_ones(responses: int) -> None:
    model = tiny_model(initializer_range=0.3)
    rows = tiny_rows(4, responses=responses)
    if responses > 1:
        for name in ("responses", "masks"):
            rows[1][name] = rows[1][name][:1]
    rows[2]["masks"][0] = [False] * len(rows[2]["masks"][0])
    data = Collator(0)(rows)
    expected, _ = scored(model, data, layout="separate")
    found, _ = scored(model, data, layout="shared_prefix")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_no_column_is_spent_on_padding_between_responses() -> None:
    data = batch(6, responses=4)
    used = int(data["attention_mask"].sum() - 3 * data["prompt_lengths"].sum())
    assert int(shared_prefix(data).attention_mask.sum()) == used
    assert int(separate(data).attention_mask.sum()) == int(data["attention_mask"].sum())


def test_what_cannot_be_told_where_to_look_is_scored_in_separate_rows(caplog: pytest.LogCaptureFixture) -> None:
    bloom = hf.BloomForCausalLM(hf.BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4)).eval()
    mamba = hf.MambaForCausalLM(
        hf.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4)
    ).eval()
    for model in (bloom, mamba):
        with caplog.at_level(logging.INFO):
            found = Scorer()(model, batch()).logps
        torch.testing.assert_close(found, Scorer(layout="separate")(model, batch()).logps)
        assert "scoring: one row per response, because" in caplog.text
        with pytest.raises(ConfigError):
            Scorer(layout="shared_prefix")(model, batch())
        caplog.clear()


def test_a_model_that_ignores_the_mask_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "prefopt.scoring.policy.attention_inputs", lambda _, layout: {"attention_mask": layout.attention_mask}
    )
    model = tiny_model(initializer_range=0.3)
    with pytest.raises(ConfigError, match="LlamaForCausalLM gives other log-probabilities with a shared prefix"):
        Scorer(layout="shared_prefix")(model, batch())


def test_the_comparison_leaves_no_gradient_and_no_other_mode_behind() -> None:
    model = tiny_model().train()
    Scorer()(model, batch())
    assert model.training
    assert all(p.grad is None for p in model.parameters())
