"""The commands step-pairs, scdpo and rise as they are run: recorded, against a server, killed and run again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_tools.cli import main
from data_tools.generators import GenRequest, Journal, Journaled, generate
from data_tools.records import read_records, write_records
from tests.data_tools.adder import Adder, problem
from tests.data_tools.misbehaving import serving

PROBLEMS = [problem(number) for number in range(10)]
MADE = ("step-pairs", "scdpo", "rise")
OPTIONS = {
    "step-pairs": ["--locate", "equations", "--locate", "rollouts", "--rollouts", "4", "--corrections", "4"],
    "scdpo": ["--rounds", "2"],
    "rise": ["--editor", "rule"],
}


def answer(body: dict[str, Any]) -> str:
    """The adder behind the protocol of servers."""
    messages = body["messages"]
    prefill = messages[-1]["content"] if messages[-1]["role"] == "assistant" else ""
    request = GenRequest(
        messages[0]["content"],
        prefill,
        temperature=body["temperature"],
        stop=tuple(body.get("stop", ())),
        seed=body["seed"],
    )
    return Adder().text(request)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl"
    write_records(path, PROBLEMS)
    return path


def arguments(command: str, source: Path, out: Path, url: str, *more: str) -> list[str]:
    asked = ["--generator", "server", "--url", url, "--model", "adder", "--retries", "20", "--max-wait", "0.02"]
    drawn = ["--prefill", "Step 1:", "--temperature", "1", "--samples", "3", "--window", "3"]
    return [command, str(source), "--out", str(out), *asked, *drawn, *OPTIONS[command], *more]


def contents(out: Path) -> tuple[bytes, bytes]:
    """Rows and rejects; the journal is in the order of arrival."""
    rejects = out.with_name(f"{out.name}.rejects.jsonl")
    return out.read_bytes(), rejects.read_bytes() if rejects.exists() else b""


@pytest.mark.parametrize("command", MADE)
def test_a_server_that_misbehaves_changes_nothing(command: str, source: Path) -> None:
    calm, rough = source.with_name("calm.jsonl"), source.with_name("rough.jsonl")
    with serving(answer=answer) as server:
        assert main(arguments(command, source, calm, server.url)) == 0
        asked = len(server.asked)
    with serving("500", "truncated", "429:0", "malformed", answer=answer) as server:
        assert main(arguments(command, source, rough, server.url)) == 0
        assert len(server.asked) == 5 * asked
    assert contents(calm) == contents(rough)
    assert len(list(read_records(calm))) > 5


@pytest.mark.parametrize("command", MADE)
def test_a_killed_run_pays_for_nothing_twice_and_gives_the_same_file(command: str, source: Path) -> None:
    undisturbed, killed = source.with_name("undisturbed.jsonl"), source.with_name("killed.jsonl")
    with serving(answer=answer) as server:
        assert main(arguments(command, source, undisturbed, server.url, "--concurrency", "3")) == 0
        whole = Counter(json.dumps(body, sort_keys=True) for body in server.asked)
    with serving(answer=answer) as server:
        words = arguments(command, source, killed, server.url, "--concurrency", "3")
        for stop in (len(whole) // 5, len(whole) // 2):
            process = subprocess.Popen([sys.executable, "-m", "data_tools", *words])
            while len(server.asked) < stop and process.poll() is None:
                time.sleep(0.002)
            process.kill()
            process.wait()
            assert not killed.exists()
        assert main(words) == 0
        paid = Counter(json.dumps(body, sort_keys=True) for body in server.asked)
    assert contents(killed) == contents(undisturbed)
    assert set(paid) == set(whole)
    assert paid.total() - len(paid) <= 2 * 3, "of each kill, no more than what was in flight"


def test_a_server_that_is_killed_and_started_again_in_the_middle(source: Path) -> None:
    undisturbed, disturbed = source.with_name("undisturbed.jsonl"), source.with_name("disturbed.jsonl")
    with serving(answer=answer) as server:
        assert main(arguments("step-pairs", source, undisturbed, server.url)) == 0
        total, port = len(server.asked), server.server_address[1]
    with serving(answer=answer, port=port) as server:
        words = arguments("step-pairs", source, disturbed, server.url, "--retries", "100", "--max-wait", "0.1")
        process = subprocess.Popen([sys.executable, "-m", "data_tools", *words])
        while len(server.asked) < total // 2 and process.poll() is None:
            time.sleep(0.002)
    assert process.poll() is None, "the run goes on while the server is away"
    with serving(answer=answer, port=port):
        assert process.wait(timeout=60) == 0
    assert contents(disturbed) == contents(undisturbed)


def test_a_server_that_stays_away_ends_the_run_with_a_word_on_how_to_go_on(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = source.with_name("out.jsonl")
    words = arguments("rise", source, out, "http://127.0.0.1:9/v1", "--retries", "1", "--concurrency", "2")
    assert main(words) == 2
    assert "8 requests in a row had no answer, the last one for 'connection'" in capsys.readouterr().err
    assert not out.exists()
    with serving(answer=answer) as server:
        assert main(arguments("rise", source, out, server.url)) == 0


@pytest.mark.parametrize("command", MADE)
def test_requests_without_an_answer_are_asked_again_by_the_same_command(
    command: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every request fails once and is not tried again, so each run comes one stage further than the one before."""
    calm, out = source.with_name("calm.jsonl"), source.with_name("out.jsonl")
    with serving(answer=answer) as server:
        assert main(arguments(command, source, calm, server.url)) == 0
        whole = {json.dumps(body, sort_keys=True) for body in server.asked}
    states = []
    with serving("500", answer=answer) as server:
        words = arguments(command, source, out, server.url, "--retries", "0", "--concurrency", "64")
        capsys.readouterr()
        assert main(words) == 1, "no rows"
        assert "requests had no answer. The same command asks them again." in capsys.readouterr().out
        while len(states) < 20 and "already complete" not in states:
            main([*words, "--json"])
            states.append(json.loads(capsys.readouterr().out)["state"])
        asked = Counter(json.dumps(body, sort_keys=True) for body in server.asked)
        assert whole <= set(asked), "scdpo asks for more samples where some are missing"
        assert max(asked.values()) == 2, "once without an answer, once with one"
    assert states[-2:] == ["done", "already complete"]
    assert set(states[:-2]) <= {"incomplete"}
    assert contents(out) == contents(calm)


@pytest.mark.parametrize("command", MADE)
def test_other_options_pay_only_for_what_is_new(command: str, source: Path) -> None:
    out, more = source.with_name("out.jsonl"), "--pairs" if command == "step-pairs" else "--naive"
    with serving(answer=answer) as server:
        assert main(arguments(command, source, out, server.url)) == 0
        before = len(server.asked)
        assert main(arguments(command, source, out, server.url, more, "1", "--overwrite", "--window", "9")) == 0
        assert len(server.asked) == before


def test_shards_and_columns_work_as_everywhere(source: Path) -> None:
    renamed = source.with_name("renamed.jsonl")
    write_records(renamed, [{"key": r["id"], "id": r["id"], "q": r["prompt"], "answer": r["answer"]} for r in PROBLEMS])
    with serving(answer=answer) as server:
        whole = source.with_name("whole.jsonl")
        assert main(arguments("rise", source, whole, server.url)) == 0
        parts = []
        for shard in ("1/2", "2/2"):
            out = source.with_name(f"part{shard[0]}.jsonl")
            words = arguments("rise", renamed, out, server.url, "--shard", shard, "--column", "prompt=q")
            assert main(words) == 0
            parts += list(read_records(out))
    assert sorted(parts, key=lambda row: row["id"]) == sorted(read_records(whole), key=lambda row: row["id"])


def test_a_dry_run_asks_nothing(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(answer=answer) as server:
        words = arguments("step-pairs", source, source.with_name("out.jsonl"), server.url, "--dry-run", "--json")
        assert main(words) == 0
        assert server.asked == []
    assert json.loads(capsys.readouterr().out)["reason"] == {"not_generated": len(PROBLEMS)}
    assert [file.name for file in source.parent.iterdir()] == [source.name]


def test_a_journal_replays_without_the_model(source: Path) -> None:
    first, again = source.with_name("first.jsonl"), source.with_name("again.jsonl")
    with serving(answer=answer) as server:
        assert main(arguments("step-pairs", source, first, server.url)) == 0
    recording = ["--generator", "recorded", "--recording", str(first.with_name("first.jsonl.answers.jsonl"))]
    words = arguments("step-pairs", source, again, "http://unused/v1", *recording)
    assert main(words) == 0
    assert contents(first) == contents(again)


def test_the_key_stands_in_no_file(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with serving("500", answer=answer) as server:
        assert main(arguments("rise", source, source.with_name("out.jsonl"), server.url)) == 0
        assert server.headers[0]["Authorization"] == "Bearer sk-very-secret"
    for file in source.parent.iterdir():
        assert b"sk-very-secret" not in file.read_bytes(), file.name


def test_a_judge_may_be_another_model(source: Path) -> None:
    def both(body: dict[str, Any]) -> str:
        if body["model"] == "judge":
            assert "student" in body["messages"][0]["content"]
            return "Final decision:\nStep 1: incorrect"
        return answer(body)

    out = source.with_name("out.jsonl")
    with serving(answer=both) as server:
        words = arguments("step-pairs", source, out, server.url)
        words = [word for word in words if word not in ("equations", "rollouts", "--locate")]
        assert main([*words, "--locate", "judge", "--judge-model", "judge"]) == 0
    rows = list(read_records(out))
    assert {(row["located_by"], row["solution_step"]) for row in rows} == {("judge", 1)}
    assert rows[0]["judge_said"] == "Final decision:\nStep 1: incorrect"


def test_an_unknown_way_to_locate_is_refused(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = arguments("step-pairs", source, source.with_name("out.jsonl"), "http://unused/v1", "--locate", "guess")
    assert main(words) == 2
    assert "--locate must be one of equations, labels, judge, rollouts; got 'guess'" in capsys.readouterr().err


def test_a_local_model_needs_prefopt(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe = ["rise", str(source), "--out", str(source.with_name("out.jsonl")), "--model", "demo:tiny-math"]
    done = subprocess.run([sys.executable, "-m", "data_tools", *probe], capture_output=True, text=True)
    assert done.returncode == 2
    assert "comes with prefopt: run `prefopt data`" in done.stderr


def test_journals_are_the_same_line_for_line_when_nothing_is_concurrent(source: Path) -> None:
    lines = []
    for number in range(2):
        journal = Journal(source.with_name(f"journal{number}.jsonl"))
        model = Adder()
        generate(Journaled(journal, model, model.identity), [GenRequest(PROBLEMS[0]["prompt"], n=3, temperature=1.0)])
        journal.close()
        lines.append(journal.path.read_bytes())
    assert lines[0] == lines[1]
