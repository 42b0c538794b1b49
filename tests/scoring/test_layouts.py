"""One row per prompt, with all its responses, says what one row per response says: for every kind of attention."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn
from torch.nn.attention.flex_attention import create_mask

from prefopt.data.collate import Collator
from prefopt.errors import ConfigError, DataError
from prefopt.scoring import Scorer, policy
from prefopt.scoring.attention import packs
from prefopt.scoring.layout import separate, shared_prefix
from prefopt.scoring.modes import freeze, stored_for_autocast
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
    "Mixtral, router logits": lambda: hf.MixtralForCausalLM(
        hf.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True)
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


@pytest.mark.parametrize("kind", MODELS)
def test_models_with_sdpa_attention_compute_no_padding(kind: str) -> None:
    model, data, scorer = MODELS[kind]().eval(), batch(responses=3), Scorer()
    scorer(model, data)
    eager = model.config._attn_implementation == "eager"
    assert scorer.settled(model) == ("padded" if eager else "packed")
    used = int(data["attention_mask"].sum() - 2 * data["prompt_lengths"].sum())
    if not eager:
        assert scorer.laid_out(model, data).places == used


def test_a_model_that_packs_is_saved_and_generates_as_before(tmp_path: Path) -> None:
    model, ids = tiny_model(initializer_range=0.3), torch.tensor([[5, 9, 33], [0, 7, 8]])
    options = {"attention_mask": torch.tensor([[1, 1, 1], [0, 1, 1]]), "max_new_tokens": 8, "do_sample": False}
    before, logits = model.generate(ids, **options), model(ids, attention_mask=options["attention_mask"]).logits
    Scorer()(model, batch())
    assert packs(model)
    assert torch.equal(model.generate(ids, **options), before)
    torch.testing.assert_close(model(ids, attention_mask=options["attention_mask"]).logits, logits)
    model.save_pretrained(tmp_path)
    assert "packed" not in (tmp_path / "config.json").read_text()
    assert hf.AutoModelForCausalLM.from_pretrained(tmp_path).config._attn_implementation == "sdpa"


def test_packed_rows_are_computed_again_where_activations_are_not_kept() -> None:
    torch.manual_seed(0)
    model, data = tiny_model(initializer_range=0.3), batch(responses=3)
    expected = scored(model, data, layout="separate")
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    found = scored(model, data, layout="shared_prefix")
    assert packs(model)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * float(other.abs().max().clamp(min=1)))


@pytest.mark.parametrize("window", [None, 4])
def test_the_block_mask_of_flex_attention_is_the_boolean_one(window: int | None) -> None:
    layout = shared_prefix(batch(responses=3))
    n, w = layout.input_ids.shape
    block = layout.block_mask(window)
    seen = torch.stack(
        [
            torch.stack(
                [block.mask_mod(torch.tensor(b), torch.tensor(0), torch.tensor(q), torch.arange(w)) for q in range(w)]
            )
            for b in range(n)
        ]
    )
    assert torch.equal(seen, layout.visible(window))


@pytest.mark.parametrize("window", [None, 1, 4])
def test_flex_attention_is_given_the_same_mask(window: int | None) -> None:
    """The kernel itself runs in `make gpu-check`: on CPUs it reads memory nobody wrote, here and there (torch 2.13)."""
    layout = shared_prefix(batch(responses=3))
    blocks = layout.block_mask(window)
    rows, width = layout.input_ids.shape
    dense = create_mask(blocks.mask_mod, rows, 1, width, width, device="cpu").squeeze(1)
    assert torch.equal(dense, layout.visible(window))


def test_a_frozen_reference_takes_half_the_memory_under_autocast_and_says_the_same() -> None:
    policy, data = tiny_model(initializer_range=0.3), batch()
    scorer = Scorer(autocast=torch.bfloat16)
    reference = freeze(copy.deepcopy(policy))
    before = scorer(reference, data).logps
    assert stored_for_autocast(reference, scorer.autocast) is reference
    assert {p.dtype for m in reference.modules() if type(m) is nn.Linear for p in m.parameters()} == {torch.bfloat16}
    assert reference.get_input_embeddings().weight.dtype == torch.float32
    assert torch.equal(scorer(reference, data).logps, before)
    assert torch.equal(before, scorer(policy, data).logps)


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


class _Slope(torch.autograd.Function):
    """Values as they are; gradients times the number of rows that the model is given."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        ctx.rows = len(values)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> torch.Tensor:
        return slope * ctx.rows


@pytest.mark.parametrize("first_without", [False, True])
def test_gradients_are_compared_as_soon_as_they_are_wanted(
    first_without: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model, scorer = tiny_model(initializer_range=0.3), Scorer()
    model.model.embed_tokens.register_forward_hook(lambda module, given, out: _Slope.apply(out))
    if first_without:
        with torch.no_grad():
            scorer(model, batch())
        assert scorer.settled(model) == "packed", "the values are right"
    with caplog.at_level(logging.INFO):
        scorer(model, batch())
    assert scorer.settled(model) == "separate"
    assert "LlamaForCausalLM gives another gradient with a shared prefix" in caplog.text


@pytest.mark.parametrize("kind", ["Llama", "Gemma 2"])
def test_gradients_are_compared_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, measure = [], policy._measured

    def noting(*arguments: Any) -> Any:
        found = measure(*arguments)
        measured.append(len(found[1]))
        return found

    monkeypatch.setattr(policy, "_measured", noting)
    model, scorer = MODELS[kind]().eval(), Scorer()
    for _ in range(2):
        with torch.no_grad():
            scorer(model, batch())
    assert measured
    assert not any(measured)
    for _ in range(2):
        scorer(model, batch())
    assert [count > 0 for count in measured[-2:]] == [True, True]
    assert sum(count > 0 for count in measured) == 2, "separate rows and the arrangement that is used"


def test_a_model_of_images_and_text_is_scored_on_text() -> None:
    torch.manual_seed(0)
    text = {**SIZES, "head_dim": 8, **MIXED}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = hf.Gemma3Config(
        text_config=text, vision_config={**vision, "image_size": 28, "patch_size": 14}, mm_tokens_per_image=4
    )
    model, data = hf.Gemma3ForConditionalGeneration(config).eval(), batch(responses=3)
    expected, slopes = scored(model, data, layout="separate", backend="plain")
    found, others = scored(model, data)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(others, slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * float(other.abs().max().clamp(min=1)))


def _rolled(data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same padded on the left."""
    ids, attention = data["input_ids"].clone(), data["attention_mask"].clone()
    for b, r in attention.any(-1).nonzero().tolist():
        free = attention.shape[-1] - int(attention[b, r].sum())
        ids[b, r], attention[b, r] = ids[b, r].roll(free), attention[b, r].roll(free)
    return {**data, "input_ids": ids, "attention_mask": attention}


def _beyond(data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**data, "mask": torch.ones_like(data["mask"])}


def _other_prompt(data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    ids = data["input_ids"].clone()
    ids[2, 1, 1] += 1
    return {**data, "input_ids": ids}


@pytest.mark.parametrize(
    ("change", "layouts", "says"),
    [
        (_rolled, ("shared_prefix", "separate", "auto"), r"prompt \d of the batch is not padded on the right"),
        (_beyond, ("shared_prefix", "separate", "auto"), r"prompt \d of the batch has a mask that reaches beyond"),
        (_other_prompt, ("shared_prefix", "auto"), "prompt 2 of the batch stands with other tokens before some of its"),
    ],
)
def test_a_batch_that_says_something_else_than_it_scores_is_refused(
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]], layouts: tuple[Any, ...], says: str
) -> None:
    for layout in layouts:
        scorer, model = Scorer(layout=layout), tiny_model(initializer_range=0.3)
        for _ in range(2):
            with pytest.raises(DataError, match=says):
                scorer(model, change(batch()))
            scorer(model, batch())  # and once more when the layout is settled


def test_values_that_follow_the_batch_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    short, long = (tiny_model(max_position_embeddings=limit, rope_parameters=rope) for limit in (64, 8))
    scorer = Scorer()
    with caplog.at_level(logging.WARNING):
        scorer(short, batch())
        assert not caplog.text
        for _ in range(2):
            scorer(long, batch())
    assert caplog.text.count("(dynamic) follows the longest row of a batch beyond 8 tokens: log-prob") == 1


def test_the_comparison_leaves_no_gradient_and_no_other_mode_behind() -> None:
    model = tiny_model().train()
    Scorer()(model, batch())
    assert model.training
    assert all(p.grad is None for p in model.parameters())
