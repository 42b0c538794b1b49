"""The examples run, and do what they say."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from trl import DPOTrainer

from prefopt import get_loss

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.skipif(
    not (ROOT / "prefopt" / "demo" / "tiny-math" / "model.safetensors").is_file(),
    reason="the demonstration models are not built: make tiny-math",
)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_loop_fits_on_a_page_and_names_three_losses_one_of_which_compares_pairs() -> None:
    assert len((EXAMPLES / "custom_loop.py").read_text().splitlines()) < 80
    losses = example("custom_loop").LOSSES
    assert len(losses) == 3
    assert [name for name, loss in losses.items() if loss.window] == ["dr_dpo"]


@pytest.mark.parametrize("name", ["dpo", "simpo", "dr_dpo"])
def test_each_loss_of_the_loop_widens_the_margin(name: str) -> None:
    margins = example("custom_loop").train(name, steps=8, batch_size=16)
    assert margins[0] == pytest.approx(0, abs=1e-4)
    assert sum(margins[5:]) > 0.05


@pytest.mark.ranks
def test_the_loop_runs_on_two_processes() -> None:
    config = ["--config_file", str(ROOT / "recipes" / "accelerate" / "ddp-cpu.yaml")]
    command = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--main_process_port",
        "0",
        *config,
        str(EXAMPLES / "custom_loop.py"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stdout.splitlines() if "2 process(es), margin" in line]
    assert [line.split()[0] for line in lines] == ["dpo", "simpo", "dr_dpo"]


def test_a_loss_of_the_registry_trains_inside_trl() -> None:
    lines = example("in_trl").train(steps=3)
    assert len(lines) == 3
    assert all("dpop/shortfall" in line for line in lines)
    assert lines[0]["loss"] == pytest.approx(0.6931, abs=1e-3)


def test_inside_trl_our_dpo_is_trls(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = example("in_trl")
    monkeypatch.setattr(module.RegistryTrainer, "objective", get_loss("dpo", beta=0.3))
    ours = module.train(steps=4, beta=0.3)
    theirs = module.train(DPOTrainer, steps=4, beta=0.3)
    for name in ("loss", "grad_norm", "rewards/margins"):
        assert [line[name] for line in ours] == pytest.approx([line[name] for line in theirs], rel=1e-3, abs=2e-4)
    assert ours[-1]["rewards/margins"] != 0
