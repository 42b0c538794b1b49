"""The scripts of benchmarks/ start, and their arithmetic is right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.limits import Sizes, forward_operations
from prefopt.data.collate import Collator
from prefopt.scoring.layout import shared_prefix

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_says_what_it_does(script: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(script), "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.startswith("usage:")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_gpu_check_says_that_there_is_no_gpu() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu_check.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "There is no CUDA device here: nothing was checked.\n")


def test_useful_operations_count_what_attention_really_sees() -> None:
    """One layer of attention width 1 and nothing else: four operations per visible pair, scores and values."""
    row = {"prompt_ids": [1] * 5, "responses": [[2] * 3, [3] * 4], "masks": [[True] * 3, [True] * 4], "length": 9}
    seen = int(shared_prefix(Collator()([row])).visible().sum())
    assert forward_operations(Sizes(body=0, head=0, layers=1, attention=1), 5, [3, 4]) == 4 * seen


def test_a_prompt_counts_once_for_all_its_responses() -> None:
    sizes = Sizes(body=10, head=7, layers=0, attention=1)
    assert forward_operations(sizes, 5, [3, 4]) == 2 * 10 * (5 + 3 + 4) + 2 * 7 * (3 + 4)
