"""Exit codes, streams, and one readable paragraph instead of a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from types import ModuleType

import pytest

import prefopt
from prefopt.cli import main
from prefopt.errors import RunError

RECIPE = {
    "model": {"name_or_path": "some/model"},
    "data": {"train": "pairs.jsonl"},
    "loss": {"name": "dpo"},
    "training": {"output_dir": "run"},
}

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("pairs.jsonl").write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n' * 20)
    Path("recipe.json").write_text(json.dumps(RECIPE))
    return "recipe.json"


def replace_command(monkeypatch: pytest.MonkeyPatch, name: str, function: object) -> None:
    module = ModuleType(f"prefopt.cli.{name}")
    setattr(module, name, function)
    monkeypatch.setitem(sys.modules, f"prefopt.cli.{name}", module)


def test_version(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"prefopt {prefopt.__version__}\n"


def test_help_lists_every_command_with_a_whole_sentence(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in ("train", "check", "preview", "losses", "schema", "init", "data"):
        assert f"\n  {command} " in out
        assert main([command, "--help"]) == 0
    commands = out.partition("Commands:")[2]
    assert "..." not in commands


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Usage:"),
        (["chek"], "No such command 'chek'. Did you mean 'check'"),
        (["check"], "Missing argument 'RECIPE'"),
        (["check", "x.yaml", "--jsn"], "No such option"),
        (["check", "nowhere.yaml"], "nowhere.yaml: there is no such file."),
        (["check", "."], ". is a folder; name the recipe file in it."),
        (["train", "nowhere.yaml"], "nowhere.yaml: there is no such file."),
        (["losses", "dpoo"], "unknown loss 'dpoo'. Did you mean 'dpo'?"),
        (["losses", "sigmoid"], "TRL's 'sigmoid' is 'dpo' here."),
        (["losses", "rdpo"], "loss 'rdpo' may mean robust_dpo"),
        (["losses", "dpo", "--markdown"], "--markdown is for the whole list"),
        (["losses", "--into", "x.md"], "--into goes with it"),
        (["losses", "--markdown", "--into", "nowhere.md"], "nowhere.md cannot be read"),
        (["train", "recipe.json", "--resume", "--resume-from", "x"], "--resume and --resume-from exclude each other"),
        (["train", "recipe.json", "--resume", "--overwrite"], "--overwrite and --resume exclude each other"),
        (["data", "nothing"], "nothing"),
    ],
)
def test_bad_input_is_refused_with_code_2(recipe: str, capsys: Captured, arguments: list[str], says: str) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_check_says_what_the_recipe_would_do(recipe: str, capsys: Captured) -> None:
    assert (
        main(["check", recipe, "loss.beta=0.2", "training.per_device_train_batch_size=3", "model.dtype=bfloat16"]) == 0
    )
    out, err = capsys.readouterr()
    lines = dict(line.split("  ", 1) for line in out.splitlines()[:-1])
    assert {name: text.strip() for name, text in lines.items()} == {
        "model": "some/model, bfloat16, all weights trained",
        "loss": "dpo (beta 0.2, label_smoothing 0.0, reference_free false)",
        "reference": "the model as it starts",
        "data": "pairs.jsonl (20 rows)",
        "length": "1024 tokens, longer rows: drop",
        "batch": "3 rows per device",
        "steps": "21 on one device, 3 epochs",
        "learning rate": "5e-05, linear, warm-up 0",
        "output": "run",
    }
    assert out.endswith("recipe.json is in order; nothing was loaded.\n")
    assert err.startswith(
        "warning: command line: model.dtype=bfloat16: model.dtype is bfloat16 and all weights are trained"
    )


def test_check_as_json(recipe: str, capsys: Captured) -> None:
    assert main(["check", recipe, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["ok"] is True
    assert json.loads(out)["plan"]["steps"] == "9 on one device, 3 epochs"
    assert err == ""
    assert main(["check", recipe, "--json", "loss.bta=1", "trainig.x=1"]) == 2
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["ok"] is False
    assert found["problems"][0] == {
        "place": "command line: loss.bta=1",
        "path": "loss.bta",
        "text": "loss 'dpo': unknown option 'bta'. Did you mean 'beta'? "
        "Options: beta, label_smoothing, reference_free.",
    }
    assert [problem["path"] for problem in found["problems"]] == ["loss.bta", "trainig"]
    assert len(err.splitlines()) == 2


def test_check_answers_at_once(recipe: str) -> None:
    start = perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "prefopt", "check", recipe], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert perf_counter() - start < 10  # 0.3 s alone; other tests run beside this one


def test_what_fails_while_running_has_code_1(recipe: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RunError("the disk is full.")

    replace_command(monkeypatch, "train", fails)
    assert main(["train", recipe]) == 1
    assert capsys.readouterr().err == "the disk is full.\n"


def test_a_bug_of_ours_is_one_sentence_and_a_traceback_with_debug(
    recipe: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise KeyError("beta")

    replace_command(monkeypatch, "train", breaks)
    assert main(["train", recipe]) == 1
    assert capsys.readouterr().err == "KeyError: 'beta'\nThis was not foreseen; --debug shows where it happened.\n"
    for arguments in (["--debug", "train", recipe], ["train", recipe, "--debug"]):
        assert main(arguments) == 1
        err = capsys.readouterr().err
        assert "Traceback" in err
        assert "in breaks" in err


def test_an_interrupt_has_code_130(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    replace_command(monkeypatch, "train", interrupted)
    assert main(["train", recipe]) == 130


def test_train_passes_everything_on(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    replace_command(monkeypatch, "train", lambda *a, **k: calls.append((a, k)))
    assert (
        main(["train", recipe, "loss.beta=-1", "--resume-from", "run/checkpoint-5", "--dry-run", "training.seed=1"])
        == 0
    )
    options = {"resume": False, "resume_from": Path("run/checkpoint-5"), "overwrite": False, "dry_run": True}
    assert calls == [((Path(recipe), ["loss.beta=-1", "training.seed=1"]), options)]


def test_every_process_refuses_a_recipe_and_the_first_one_says_so(
    recipe: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("prefopt.cli.time.sleep", waited.append)
    monkeypatch.setenv("RANK", "1")
    assert main(["check", recipe, "loss.bta=1"]) == 2
    assert waited == [30.0], "long enough for the first process to speak and the launcher to end this one"
    assert capsys.readouterr().err.startswith("[process 1] command line: loss.bta=1"), "and in case it does not"

    def fails(*_: object, **__: object) -> None:
        raise RunError("out of memory.")

    replace_command(monkeypatch, "train", fails)
    assert main(["train", recipe]) == 1
    assert capsys.readouterr().err == "[process 1] out of memory.\n"


def test_data_is_data_tools(capsys: Captured, tmp_path: Path) -> None:
    assert main(["data", "problems", str(tmp_path / "p.jsonl"), "--count", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["count"] == 3
    assert main(["data", "--help"]) == 0
    assert "problems" in capsys.readouterr().out


def test_a_closed_pipe_is_no_error(repository: Path) -> None:
    command = f"{sys.executable} -m prefopt schema | head -c 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=repository,
        env=os.environ,
    )
    assert "Traceback" not in done.stderr
    assert "not foreseen" not in done.stderr


def test_schema_and_init(tmp_path: Path, capsys: Captured) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "prefopt recipe"
    assert main(["init", str(tmp_path / "new")]) == 0
    assert "quickstart.yaml" in capsys.readouterr().out
    assert (tmp_path / "new" / "recipes" / "losses" / "dpo.yaml").is_file()
    assert main(["init", str(tmp_path / "new")]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["init", str(tmp_path / "new"), "--overwrite"]) == 0


LEAVING = """
import atexit, os, sys, threading, time
import prefopt.cli

class Held:
    def __del__(self):
        os.abort()  # as a process group does whose threads want an interpreter that is gone

held = Held()
atexit.register(print, "last words")
threading.Thread(target=lambda: (time.sleep(0.2), print("work done"))).start()
sys.argv = ["prefopt", *{arguments}]
prefopt.cli.run()
"""


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["check", "no-such-file.yaml"], 2)])
def test_a_launched_process_ends_with_its_work_done_and_no_teardown(arguments: list[str], code: int) -> None:
    environment = {**os.environ, "WORLD_SIZE": "2", "RANK": "0"}
    done = subprocess.run(
        [sys.executable, "-c", LEAVING.format(arguments=arguments)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-2:] == ["work done", "last words"]


@pytest.mark.parametrize(("arguments", "code"), [("--version", 0), ("check no-such-file.yaml", 2)])
def test_a_process_of_its_own_ends_with_its_exit_code(arguments: str, code: int) -> None:
    assert subprocess.run([sys.executable, "-m", "prefopt", *arguments.split()], capture_output=True).returncode == code
