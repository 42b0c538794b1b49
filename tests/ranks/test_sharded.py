"""Weights shared out over two processes (FSDP 2, ZeRO 3) give the run of one process that holds them all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, TrainingArguments

from prefopt import ConfigError, train
from prefopt.scoring import Scorer
from prefopt.scoring.reference import FrozenTwinReference
from prefopt.train.sharding import check_sharding
from tests.ranks.test_launchers import launched, on_two_cpus, sections
from tests.train.folder import recipe, tokenizer
from tests.train.test_run import assert_same_metrics, metrics, weights
from tests.train.tiny import tiny_model

ADAPTER = {"mode": "new", "r": 4, "alpha": 8, "target_modules": ["q_proj", "down_proj"]}
CASES: dict[str, dict[str, Any]] = {
    "full weights": {},
    "tied head with a soft cap": {"model": {"attn_implementation": "eager"}},
    "adapter": {"model": {"adapter": ADAPTER}},
    "whole distributions": {"loss": {"name": "tdpo2"}},
    "window of a step": {"loss": {"name": "dr_dpo"}, "scoring": {"coupling": "step"}},
    "layers computed again": {"training": {**sections(2)["training"], "gradient_checkpointing": True}},
}
FAST = ("tied head with a soft cap", "adapter")
SOME = [pytest.param(case, marks=[] if case in FAST else [pytest.mark.slow]) for case in CASES]


def capped_model(folder: Path) -> None:
    """A Gemma 2 in `folder/model`: tied head, soft caps, layers that slide and layers that do not."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 6, "final_logit_softcapping": 3.0}
    torch.manual_seed(0)
    Gemma2ForCausalLM(Gemma2Config(vocab_size=272, **sizes, **more)).save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")


def two(folder: Path, name: str, *words: str) -> None:
    """Train `folder/recipe.json` in two processes under this configuration."""
    module = "tests.ranks.fsdp_on_cpu" if "fsdp" in name else "prefopt"
    file = str(folder / "recipe.json")
    done = launched("train", file, *words, configuration=on_two_cpus(name, folder), module=module)
    assert done.returncode == 0, done.stderr[-3000:]


def both(folder: Path, name: str, case: str) -> None:
    """The run of one process in `one`, that of two with this configuration in `run`, compared."""
    changed = CASES[case]
    if "soft cap" in case:
        capped_model(folder)
    train(recipe(folder, {"training.output_dir": str(folder / "one")}, **{**sections(4), **_whole(changed)}))
    recipe(folder, **{**sections(2), **changed})
    two(folder, name)
    assert_same_metrics(folder / "run", folder / "one")
    ours, theirs = weights(folder / "run"), weights(folder / "one")
    assert ours.keys() - {"lm_head.weight"} == theirs.keys() - {"lm_head.weight"}  # a tied one is written twice
    for key, tensor in theirs.items():
        assert (ours[key] - tensor).abs().max() < 1e-5, key


def _whole(changed: dict[str, Any]) -> dict[str, Any]:
    training = changed.get("training")
    return changed if training is None else {**changed, "training": {**training, "per_device_train_batch_size": 4}}


@pytest.mark.ranks
@pytest.mark.parametrize("case", SOME)
def test_fsdp_gives_the_run_of_one_process(tmp_path: Path, case: str) -> None:
    both(tmp_path, "fsdp2.yaml", case)


@pytest.mark.ranks
@pytest.mark.parametrize("case", SOME)
def test_zero_3_gives_the_run_of_one_process(tmp_path: Path, case: str) -> None:
    pytest.importorskip("deepspeed")
    both(tmp_path, "zero3.yaml", case)


@pytest.mark.ranks
@pytest.mark.slow
@pytest.mark.parametrize("name", ["fsdp2.yaml", "zero3.yaml"])
def test_a_run_that_goes_on_from_a_checkpoint_is_the_undisturbed_run(tmp_path: Path, name: str) -> None:
    if "zero" in name:
        pytest.importorskip("deepspeed")
    saving = {**sections(2)["training"], "save_strategy": "steps", "save_steps": 3}
    recipe(tmp_path, **{**sections(2), "training": saving})
    two(tmp_path, name)
    lines, values = losses(tmp_path / "run"), weights(tmp_path / "run")
    two(tmp_path, name, "--resume-from", str(tmp_path / "run" / "checkpoint-3"))
    assert losses(tmp_path / "run") == pytest.approx(lines, rel=1e-6)
    for key, tensor in weights(tmp_path / "run").items():
        torch.testing.assert_close(tensor, values[key], rtol=1e-6, atol=1e-7, msg=key)


def losses(run: Path) -> list[float]:
    """The loss of every step."""
    return [line["loss"] for line in metrics(run) if "loss" in line]


# what cannot be had


def test_fsdp_of_the_first_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match=r"FSDP 1 keeps weights where scoring cannot read them. Use FSDP 2"):
        train(recipe(tmp_path))


def test_fsdp_on_one_process_is_refused_where_accelerate_would_ignore_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fsdp(monkeypatch)
    with pytest.raises(ConfigError, match=r"FSDP was asked for, and accelerate gives it to several GPUs only"):
        train(recipe(tmp_path))


def test_a_model_loaded_by_one_process_for_all_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fsdp(monkeypatch)
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "true")
    with pytest.raises(ConfigError, match=r"cpu_ram_efficient_loading leaves every process but the first without"):
        train(recipe(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"safety.nonfinite": "skip"},
            r"nonfinite: skip leaves rows out on one process, and with FSDP all",
        ),
        ({"reference.sync.every": 2, "reference.sync.mix": 0.5}, r"reference.sync mixes whole weights, and FSDP"),
        ({"model.quantization": "4bit", "model.adapter": ADAPTER}, r"weights of few bits are not shared out by FSDP"),
    ],
)
def test_settings_that_would_let_processes_part_ways_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    with_fsdp(monkeypatch)
    with pytest.raises(ConfigError, match=message):
        train(recipe(tmp_path, changes))


def test_an_adapter_that_goes_on_needs_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fsdp(monkeypatch)
    args = TrainingArguments(str(tmp_path), use_cpu=True)
    twin = FrozenTwinReference.of(tiny_model(), Scorer())
    with pytest.raises(ConfigError, match=r"Fill a cache first, `prefopt reference RECIPE`; it then serves instead"):
        check_sharding(args, nonfinite="stop", reference=twin)


def with_fsdp(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `accelerate launch` tells a process by way of `fsdp2.yaml`."""
    assert "FSDP_CPU_RAM_EFFICIENT_LOADING" not in os.environ
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
