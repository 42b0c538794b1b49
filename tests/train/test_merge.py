"""An adapter in its base weights says what the adapter said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM, PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from prefopt import ConfigError, RunError, train
from prefopt.cli import main
from prefopt.train.merge import merge
from tests.train.folder import model_folder, recipe
from tests.train.test_run import weights

IDS = torch.tensor([[10, 20, 30, 40, 50], [9, 8, 7, 6, 5]])
TARGETS = ["q_proj", "v_proj", "down_proj"]


def trained(folder: Path, name: str = "run", *, rate: float = 1e-2, **adapter: Any) -> Path:
    shape = {} if adapter.get("mode") == "continue" else {"r": 4, "target_modules": TARGETS}
    model = {"name_or_path": str(folder / "model"), "adapter": shape | adapter}
    train(recipe(folder, model=model, training={"output_dir": str(folder / name), "learning_rate": rate}))
    return folder / name


@pytest.mark.parametrize("kind", ["lora", "dora", "rslora"])
def test_the_merged_model_has_the_adapters_logits_and_loads_with_plain_transformers(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, kind=kind)
    assert not (run / "model.safetensors").exists(), "only the adapter is saved"
    names = {name.split(".")[-2] for name in weights(run)} | {name.split(".")[-1] for name in weights(run)}
    assert any("lora_magnitude_vector" in name for name in names) == (kind == "dora")
    assert main(["merge", str(run), "--out", str(tmp_path / "merged")]) == 0
    assert "its logits differ from the adapter's by" in capsys.readouterr().out
    adapted = AutoPeftModelForCausalLM.from_pretrained(run).eval()
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    assert not isinstance(merged, PeftModel)
    with torch.no_grad():
        torch.testing.assert_close(merged(IDS).logits, adapted(IDS).logits, rtol=1e-4, atol=1e-4)
        assert (merged(IDS).logits - base(IDS).logits).abs().max() > 1e-2, "the adapter had learned something"
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").eos_token == "<|end|>"


@pytest.mark.parametrize("case", ["continue", "merge", "no reference"])
def test_a_base_that_has_changed_is_not_merged_into(tmp_path: Path, case: str) -> None:
    if case == "no reference":
        model = {"name_or_path": str(tmp_path / "model"), "adapter": {"r": 4, "target_modules": TARGETS}}
        train(recipe(tmp_path, model=model, loss={"name": "simpo", "beta": 2.0}))
        run = tmp_path / "run"
    else:
        run = trained(tmp_path, "second", mode=case, start=str(trained(tmp_path, "first")))
    merge(run, tmp_path / "merged")
    changed = weights(tmp_path / "model")
    changed["model.layers.0.self_attn.q_proj.weight"] *= 1.5
    save_file(changed, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"is not the model that .* was trained on: its weights have the fingerprint"):
        merge(run, tmp_path / "again")


def test_continuing_and_merging_first_keep_what_was_learned(tmp_path: Path) -> None:
    first = trained(tmp_path, "first")
    for mode in ("continue", "merge"):
        run = trained(tmp_path, mode, rate=1e-4, mode=mode, start=str(first))
        assert main(["merge", str(run), "--out", str(tmp_path / f"{mode}-merged")]) == 0
    start = AutoPeftModelForCausalLM.from_pretrained(first).eval()
    for mode in ("continue", "merge"):
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / f"{mode}-merged").eval()
        base = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
        with torch.no_grad():
            now, then, before = (model(IDS).logits for model in (merged, start, base))
        assert (now - then).norm() < (now - before).norm(), "the second training went on from the first"


def test_what_cannot_be_merged_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(recipe(tmp_path))
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine").write_text("mine")
    run = trained(tmp_path, "adapted")
    for arguments, complaint in (
        ([str(tmp_path / "run"), "--out", str(tmp_path / "new")], "holds full weights already: there is nothing"),
        ([str(tmp_path / "model" / "none"), "--out", str(tmp_path / "new")], "is no run directory"),
        ([str(taken), "--out", str(tmp_path / "new")], "holds no trained adapter: there is nothing to merge"),
        ([str(run), "--out", str(taken)], "is there already and not an empty folder; nothing was written"),
        ([str(run), "--out", str(tmp_path / "new"), "--dtype", "int4"], "--dtype is one of float32, bfloat16, float16"),
    ):
        assert main(["merge", *arguments]) == 2
        assert complaint in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    assert [path.name for path in taken.iterdir()] == ["mine"]


def test_another_base_in_the_place_of_the_one_that_was_trained_on_is_refused(tmp_path: Path) -> None:
    run = trained(tmp_path)
    model_folder(tmp_path / "model", seed=1)
    with pytest.raises(ConfigError, match=r"is not the model that .* was trained on: its weights have the fingerprint"):
        merge(run, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_adapter_that_rounding_would_swallow_is_not_merged_and_no_folder_is_left(tmp_path: Path) -> None:
    run = trained(tmp_path, rate=1e-5)
    new = tmp_path / "new"
    with pytest.raises(RunError, match=r"and by \d+ % of what the adapter changes \(allowed 50 %\), so nothing was"):
        merge(run, new, dtype="bfloat16")
    assert not new.exists()
    assert not list(tmp_path.glob(".new*"))
    new.mkdir()
    found = merge(run, new)
    assert found.lost < 0.2
    assert (new / "model.safetensors").exists()


def test_a_module_to_save_that_no_model_has_is_refused(tmp_path: Path) -> None:
    adapter = {"r": 4, "target_modules": ["q_proj"], "modules_to_save": ["embed_token"]}
    model = {"name_or_path": str(tmp_path / "model"), "adapter": adapter}
    with pytest.raises(ConfigError, match=r"modules_to_save: \w+ has no module 'embed_token'. Did you mean"):
        train(recipe(tmp_path, model=model))
