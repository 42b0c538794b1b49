"""Adapters over quantized weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from prefopt import ConfigError, train
from prefopt.cli import main
from prefopt.train.build import assemble
from tests.train.folder import recipe
from tests.train.test_run import metrics, weights

ADAPTER = {"r": 4, "target_modules": ["q_proj", "v_proj", "down_proj"]}


def quantized(folder: Path, bits: str, **changes: Any) -> Any:
    model = {"name_or_path": str(folder / "model"), "quantization": bits, "adapter": ADAPTER} | changes
    return recipe(folder, model=model, training={"learning_rate": 1e-2, "max_steps": 6})


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_an_adapter_is_trained_over_quantized_weights_and_only_it_is_saved(tmp_path: Path, bits: str) -> None:
    bnb = pytest.importorskip("bitsandbytes")
    trainer = assemble(quantized(tmp_path, bits)).trainer
    kind = bnb.nn.Linear4bit if bits == "4bit" else bnb.nn.Linear8bitLt
    assert any(isinstance(module, kind) for module in trainer.model.modules())
    assert trainer.reference.describe()["kind"] == "adapter off"
    train(quantized(tmp_path, bits))
    losses = [line["loss"] for line in metrics(tmp_path / "run") if "loss" in line]
    assert losses[0] == pytest.approx(0.6931, abs=1e-3)
    assert losses[-1] < losses[0] - 0.01
    assert all("lora_" in name for name in weights(tmp_path / "run"))
    assert main(["merge", str(tmp_path / "run"), "--out", str(tmp_path / "merged")]) == 0
    assert main(["estimate", str(tmp_path / "recipe.json")]) == 0


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setattr("prefopt.train.model.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"4bit needs bitsandbytes, .* pip install 'prefopt-train\[quantization\]'"):
        assemble(quantized(tmp_path, "4bit"))


def test_what_quantized_weights_cannot_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"quantized weights cannot be trained\. Add model.adapter"):
        quantized(tmp_path, "4bit", adapter=None)
    with pytest.raises(ConfigError, match="an adapter is not merged into quantized weights"):
        quantized(tmp_path, "8bit", adapter={"mode": "merge", "start": str(tmp_path)})
