"""`accelerate launch -m prefopt diagnose`: two processes write what one writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prefopt.cli import main
from tests.cli.test_diagnose import contents
from tests.ranks.test_launchers import launched
from tests.train.folder import model_folder, pairs


@pytest.mark.ranks
def test_two_processes_write_the_bytes_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    model, data = model_folder(tmp_path / "model"), pairs(tmp_path / "pairs.jsonl", 37)
    other = model_folder(tmp_path / "other", seed=1)
    words = ["diagnose", "--model", str(other), "--start", str(model), "--data", str(data), "--batch-tokens", "60"]
    words += ["--keep-lowest", "0.3", "--out"]
    done = launched(*words, str(tmp_path / "two"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("written to") == 1, "only the first process reports"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as launchers do, since the number of threads decides the order of sums
    try:
        assert main([*words, str(tmp_path / "one")]) == 0
    finally:
        torch.set_num_threads(threads)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.ranks
def test_a_mistake_ends_every_process_and_is_told_once(tmp_path: Path) -> None:
    data = pairs(tmp_path / "pairs.jsonl", 5)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("")
    done = launched("diagnose", "--model", "demo:tiny-math", "--data", str(data), "--out", str(tmp_path / "out"))
    assert done.returncode != 0
    assert done.stderr.count("is no diagnosis, so it is left alone") == 1
