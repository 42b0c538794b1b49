"""Plain and chunked scoring are one function: same values, same gradients, for every kind of head."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    RecurrentGemmaConfig,
    RecurrentGemmaForCausalLM,
)

from prefopt.data.collate import Collator
from prefopt.errors import ConfigError, DataError
from prefopt.scoring import Scorer, score, token_logps
from prefopt.scoring.heads import Head, find_head, in_place_of, verify_head
from tests.train.tiny import VOCABULARY, tiny_model, tiny_rows

SIZES: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS: dict[str, Any] = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def gemma2() -> torch.nn.Module:
    config = Gemma2Config(
        **SIZES, **HEADS, head_dim=8, final_logit_softcapping=5.0, sliding_window=16, attn_implementation="eager"
    )
    return Gemma2ForCausalLM(config)


def recurrent_gemma() -> torch.nn.Module:
    sizes = {**SIZES, **HEADS, "num_hidden_layers": 3, "num_key_value_heads": 1, "lru_width": 32}
    return RecurrentGemmaForCausalLM(RecurrentGemmaConfig(**sizes, attention_window_size=16, logits_soft_cap=0.5))


MODELS = {
    "tied": lambda: tiny_model(tie_word_embeddings=True),
    "untied": tiny_model,
    "soft cap": gemma2,
    "soft cap of another name": recurrent_gemma,
    "multiplied": lambda: CohereForCausalLM(CohereConfig(**SIZES, **HEADS, logit_scale=0.25)),
    "divided": lambda: GraniteForCausalLM(GraniteConfig(**SIZES, **HEADS, logits_scaling=3.0)),
    "bias": lambda: PhiForCausalLM(PhiConfig(**SIZES, **HEADS)),
    "learned positions": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    ),
}


def batch(count: int = 5, **options: Any) -> dict[str, torch.Tensor]:
    return Collator(0)(tiny_rows(count, **options))


def scored(
    model: torch.nn.Module, data: dict[str, torch.Tensor], **options: Any
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    logps = score(model, data, **options).logps
    weights = torch.arange(logps.numel(), dtype=logps.dtype).view_as(logps).cos()
    (logps * weights).sum().backward()
    return logps.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", MODELS)
def test_chunked_equals_plain_in_value_and_gradient(kind: str) -> None:
    torch.manual_seed(0)
    model = MODELS[kind]().eval()
    plain, expected = scored(model, batch(), backend="plain")
    chunked, found = scored(model, batch(), backend="chunked", chunk=7)
    torch.testing.assert_close(chunked, plain, rtol=1e-5, atol=1e-5)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("backend", ["plain", "chunked"])
def test_equals_the_definition_response_by_response(backend: Any) -> None:
    """A loop over responses without padding, in float64, against the batched path."""
    model = tiny_model(dtype=torch.float64)
    rows = tiny_rows(5)
    found = score(model, Collator(0)(rows), backend=backend).logps
    for b, row in enumerate(rows):
        for r, response in enumerate(row["responses"]):
            ids = torch.tensor([row["prompt_ids"] + response])
            logits = model(input_ids=ids).logits[0]
            start = len(row["prompt_ids"])
            expected = [torch.log_softmax(logits[start + t - 1], -1)[token] for t, token in enumerate(response)]
            torch.testing.assert_close(found[b, r, : len(response)], torch.stack(expected), rtol=1e-9, atol=1e-9)
            assert not found[b, r, len(response) :].any()


def test_a_missing_response_is_not_scored() -> None:
    rows = tiny_rows(3, responses=3)
    rows[1] = {**rows[1], "responses": rows[1]["responses"][:2], "masks": rows[1]["masks"][:2]}
    data = Collator(0)(rows)
    model = tiny_model()
    found = score(model, data).logps
    assert not found[1, 2].any()
    assert found[0, 2].any()
    two = score(
        model, Collator(0)([{**r, "responses": r["responses"][:2], "masks": r["masks"][:2]} for r in rows])
    ).logps
    torch.testing.assert_close(found[:, :2, : two.shape[-1]], two, rtol=1e-5, atol=1e-5)


def test_padding_and_neighbours_do_not_matter() -> None:
    model, rows = tiny_model(), tiny_rows(6)
    together = score(model, Collator(0)(rows)).logps
    for b, row in enumerate(rows):
        alone = score(model, Collator(0)([row])).logps[0]
        torch.testing.assert_close(together[b, :, : alone.shape[-1]], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_log_probabilities_are_float32_whatever_the_model_runs_in(dtype: torch.dtype) -> None:
    for backend in ("plain", "chunked"):
        assert score(tiny_model(dtype=dtype), batch(), backend=backend).logps.dtype == torch.float32  # type: ignore[arg-type]


def test_autocast_backends_agree_and_leave_the_weights_alone() -> None:
    model = tiny_model()
    plain = Scorer("plain", autocast=torch.bfloat16)(model, batch()).logps
    chunked = Scorer("chunked", autocast=torch.bfloat16, chunk=5)(model, batch()).logps
    exact = Scorer("plain")(model, batch()).logps
    torch.testing.assert_close(chunked, plain, rtol=1e-2, atol=1e-2)
    assert 1e-5 < (plain - exact).abs().max() < 0.2
    assert next(model.parameters()).dtype == torch.float32


def test_long_answers_keep_their_nats() -> None:
    """Case 19: 1,024 tokens over 32,000 ids with bfloat16 logits; float32 arithmetic on top loses a tenth, not three
    nats.
    """
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(1024, 32_000, generator=generator) * 3).bfloat16()
    labels = torch.randint(32_000, (1024,), generator=generator)
    exact = torch.log_softmax(logits.double(), -1).gather(-1, labels.unsqueeze(-1)).sum()
    ours = token_logps(logits, labels)
    assert ours.dtype == torch.float32
    assert abs(float(ours.double().sum() - exact)) < 0.05
    coarse = torch.log_softmax(logits, -1).gather(-1, labels.unsqueeze(-1)).sum()
    assert abs(float(coarse.double() - exact)) > 0.05, "the case no longer shows what it is about"


class Largest(TorchDispatchMode):
    """Remembers the largest tensor with a vocabulary axis that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dim() > 1 and out.shape[-1] == VOCABULARY:
            self.rows = max(self.rows, out.numel() // VOCABULARY)
        return out


def test_chunked_never_holds_the_logits_of_all_positions() -> None:
    model, data = tiny_model(), batch(8)
    scorer = Scorer("chunked", chunk=4)
    scorer(model, data)  # settles the head outside of what is watched
    hidden = 32  # parameters [V, H] and their transposes have H rows at most
    scored_tokens = int(data["mask"].sum())
    with Largest() as watched:
        scorer(model, data).logps.sum().backward()
    assert scored_tokens > 2 * hidden
    assert watched.rows <= hidden


def test_what_is_known_of_a_model_goes_with_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)  # an exception in a kept record would hold its frames, and so the model
    scorer, data = Scorer(), batch(2)
    for _ in range(2):  # a new model often stands where one that is gone has stood
        for name in ("soft cap", "divided", "bias"):
            model = MODELS[name]()
            torch.testing.assert_close(scorer(model, data).logps, Scorer()(model, data).logps, msg=name)
            gone = weakref.ref(model)
            del model
            gc.collect()
            assert gone() is None, name
    assert "rows are padded, because" in caplog.text


def test_an_unknown_head_is_refused_and_auto_falls_back() -> None:
    class Odd(type(tiny_model())):  # type: ignore[misc]
        def forward(self, *args: Any, logits_to_keep: Any = 0, **kwargs: Any) -> Any:
            out = super().forward(*args, logits_to_keep=logits_to_keep, **kwargs)
            return type(out)(logits=out.logits * 1.5)

    model = Odd(tiny_model().config)
    with pytest.raises(ConfigError, match="changes its logits after the head in a way prefopt does not know"):
        score(model, batch(), backend="chunked")
    expected, found = score(model, batch(), backend="plain").logps, score(model, batch(), backend="auto").logps
    torch.testing.assert_close(found, expected)


def test_a_wrong_scale_is_found_by_verification() -> None:
    model = tiny_model()
    verify_head(model, find_head(model))
    with pytest.raises(ConfigError, match="relative difference"):
        verify_head(model, Head(model.get_output_embeddings(), scale=1.01))


def test_a_head_computes_something_else_once_and_then_itself_again() -> None:
    module = nn.Linear(4, 3)
    states = torch.ones(2, 4)
    seen = []
    module.register_forward_hook(lambda _module, _args, output: seen.append(output))
    with in_place_of(module, lambda hidden: hidden.sum(-1, keepdim=True)) as answers:
        first, second = module(states), module(states)
    assert torch.equal(first, torch.full((2, 1), 4.0))
    assert torch.equal(answers[0], first)
    assert torch.equal(seen[0], first), "its hooks run around what is computed"
    assert torch.equal(second, module(states))
    with pytest.raises(RuntimeError, match="interrupted"), in_place_of(module, torch.neg):
        raise RuntimeError("interrupted")
    assert torch.equal(second, module(states)), "also where its call never came"


@pytest.mark.parametrize("kind", MODELS)
def test_known_heads_are_verified_in_half_precision_too(kind: str) -> None:
    torch.manual_seed(0)
    model = MODELS[kind]().to(torch.bfloat16)
    verify_head(model, find_head(model))
    with pytest.raises(ConfigError, match="relative difference"):
        verify_head(model, Head(find_head(model).module, scale=1.1))


def test_a_graph_used_twice_leaves_the_next_one_alone() -> None:
    model, scorer, first, second = tiny_model(), Scorer(chunk=5), batch(3), batch(4)
    weight = model.get_output_embeddings().weight
    scorer(model, second).logps.sum().backward()
    expected, weight.grad = weight.grad, None
    one = scorer(model, first).logps.sum()
    (before,) = torch.autograd.grad(one, weight, retain_graph=True)
    other = scorer(model, second).logps.sum()
    (again,) = torch.autograd.grad(one, weight)
    other.backward()
    torch.testing.assert_close(again, before)
    torch.testing.assert_close(weight.grad, expected)


def test_scoring_in_inference_mode_leaves_later_scoring_alone() -> None:
    model, scorer = tiny_model(), Scorer()
    with torch.inference_mode():
        expected = scorer(model, batch()).logps.clone()
    found = scorer(model, batch()).logps
    found.sum().backward()
    torch.testing.assert_close(found.detach(), expected)


def test_a_model_is_looked_at_once_and_again_when_its_head_was_replaced() -> None:
    model, calls = tiny_model(), []
    model.model.register_forward_hook(lambda *_: calls.append(None))
    score(model, batch())
    calls.clear()
    score(model, batch())
    assert len(calls) == 1
    adapted = get_peft_model(model, LoraConfig(target_modules=["lm_head"], init_lora_weights=False))
    torch.testing.assert_close(score(adapted, batch()).logps, score(adapted, batch(), backend="plain").logps)


@pytest.mark.parametrize("layout", ["auto", "separate", "shared_prefix"])
def test_a_first_token_without_anything_before_it_is_refused(layout: Any) -> None:
    rows = tiny_rows(3)
    rows[1] = {**rows[1], "prompt_ids": []}
    with pytest.raises(DataError, match="prompt 1 of the batch is empty, and nothing predicts the first token"):
        Scorer(layout=layout)(tiny_model(), Collator(0)(rows))


def test_local_attention_of_another_kind_gets_rows_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config = GPTNeoConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        window_size=4,
        attention_types=[[["local"], 2]],
    )
    model, scorer = GPTNeoForCausalLM(config), Scorer()
    scorer(model, batch(2))
    assert scorer.settled(model) == "separate"
    assert "its attention is local in a way prefopt does not know (window_size)" in caplog.text
