"""Case 15: an adapter on the head. Chunks read the effective weight; what is saved is what was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, get_peft_model

from prefopt import ConfigError, PreferenceTrainer, get_loss
from prefopt.config.sections import AdapterSection
from prefopt.data.collate import Collator
from prefopt.scoring import score
from prefopt.train.model import with_adapter
from tests.train.tiny import arguments, tiny_model, tiny_rows

IDS = torch.tensor([[5, 9, 33, 70, 2]])
KINDS = {
    "adapter on an untied head": (False, {"target_modules": ["lm_head", "q_proj"]}),
    "tied embedding trained in full": (True, {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
    "embedding trained in full": (False, {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
    "head trained in full": (False, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
}


def adapted(kind: str) -> Any:
    tied, options = KINDS[kind]
    torch.manual_seed(0)
    model = get_peft_model(tiny_model(tie_word_embeddings=tied), LoraConfig(task_type="CAUSAL_LM", r=4, **options))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.02 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_chunked_reads_the_effective_head(kind: str) -> None:
    model, data = adapted(kind), Collator(0)(tiny_rows(4))
    gradients = []
    for backend in ("plain", "chunked"):
        model.zero_grad()
        score(model, data, backend=backend, chunk=5).logps.sum().backward()  # type: ignore[arg-type]
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    assert any("lm_head" in name or "embed_tokens" in name for name in gradients[0])
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_reloaded_and_merged_it_gives_the_logits_that_were_trained(kind: str, tmp_path: Path) -> None:
    base = tmp_path / "base"
    tiny_model(tie_word_embeddings=KINDS[kind][0]).save_pretrained(base)
    model = adapted(kind)
    model.peft_config["default"].base_model_name_or_path = str(base)
    run = PreferenceTrainer(
        model, arguments(tmp_path / "run", learning_rate=1e-2), objective=get_loss("dpo"), train_dataset=tiny_rows(8)
    )
    run.train()
    run.save_model(str(tmp_path / "saved"))
    expected = run.model.eval()(IDS).logits
    loaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    torch.testing.assert_close(loaded(IDS).logits, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(loaded.merge_and_unload()(IDS).logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_an_adapter_on_a_tied_matrix_is_refused(target: str) -> None:
    """PEFT trains it and then merges it into both ends of the model."""
    with pytest.raises(ConfigError, match=f"{target} is tied to the other end of the model"):
        with_adapter(tiny_model(tie_word_embeddings=True), AdapterSection(target_modules=(target, "q_proj")))
    with_adapter(tiny_model(tie_word_embeddings=False), AdapterSection(target_modules=(target, "q_proj")))
