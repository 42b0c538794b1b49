"""A generator behind HTTP: whatever the server does, there is an answer, a counted failure or a clear error."""

from __future__ import annotations

import random
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from data_tools.cli import main
from data_tools.command import RunInfo
from data_tools.errors import DataToolsError
from data_tools.generators import (
    GeneratorOptions,
    GenRequest,
    Journal,
    Journaled,
    Server,
    ServerSettings,
    generate,
    open_generator,
)
from data_tools.generators.exchange import Place
from data_tools.generators.patience import Backoff, Pace, retry_after
from data_tools.records import write_records
from tests.data_tools.misbehaving import Misbehaving, serving

QUICK = Backoff(retries=3, first=0.01, most=0.05)


def server_at(url: str, **settings: Any) -> Server:
    return Server(ServerSettings(url, "m", **{"backoff": QUICK, "seconds": 5.0, **settings}))


def ask(server: Misbehaving, count: int = 1, **settings: Any) -> list[Any]:
    requests = [GenRequest(f"p{n}", seed=n) for n in range(count)]
    return generate(server_at(server.url, **settings), requests)


class Clock(threading.Event):
    """Takes the place of a pace's event: waiting takes no time and is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.waits = 1000.0, list[float]()

    def into(self, pace: Pace) -> None:
        pace.stopped = self

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now += timeout
        self.waits.append(timeout)
        return self.is_set()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


@pytest.mark.parametrize("trouble", ["429:0", "500", "503", "truncated", "malformed", "shape", "closed"])
def test_what_may_pass_is_tried_again(trouble: str) -> None:
    with serving(trouble, trouble) as server:
        (reply,) = ask(server)
        assert reply.texts == ["answer to 0"]
        assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("429:0", "http_429"),
        ("500", "http_500"),
        ("truncated", "truncated_body"),
        ("malformed", "malformed_body"),
        ("shape", "malformed_body"),
        ("closed", "connection"),
    ],
)
def test_what_does_not_pass_is_a_failure_with_its_reason(trouble: str, reason: str) -> None:
    with serving(*[trouble] * 9) as server:
        (reply,) = ask(server)
        assert [failure.reason for failure in reply.failures] == [reason]
        assert reply.results == ()
        assert len(server.asked) == 1 + QUICK.retries


@pytest.mark.parametrize(("trouble", "reason"), [("400", "http_400"), ("422", "http_422"), ("null", "no_text")])
def test_what_another_try_cannot_better_is_not_tried_again(trouble: str, reason: str) -> None:
    with serving(trouble) as server:
        (reply,) = ask(server)
        assert reply.failures[0].reason == reason
        assert len(server.asked) == 1


@pytest.mark.parametrize("trouble", ["slow", "dripping"])
def test_a_server_that_holds_back_its_answer_is_left_at_the_deadline(trouble: str) -> None:
    with serving(*[trouble] * 9) as server:
        (reply,) = ask(server, seconds=0.3, backoff=Backoff(retries=1, first=0.01))
        assert reply.failures[0].reason == "timeout"
        assert reply.failures[0].detail == "no whole answer within 0.3 s"
        assert len(server.asked) == 2


def test_nobody_there_is_a_failure(free_port: int) -> None:
    (reply,) = generate(server_at(f"http://127.0.0.1:{free_port}/v1"), [GenRequest("p")])
    assert reply.failures[0].reason == "connection"


def test_a_server_that_comes_back_is_found_again(free_port: int) -> None:
    patient = server_at(f"http://127.0.0.1:{free_port}/v1", backoff=Backoff(retries=40, first=0.05, most=0.05))
    replies: list[Any] = []
    thread = threading.Thread(target=lambda: replies.extend(generate(patient, [GenRequest("p", seed=7)])))
    thread.start()
    with serving(port=free_port):
        thread.join(20)
    assert [reply.texts for reply in replies] == [["answer to 7"]]


def test_the_wait_that_a_server_asks_for_is_kept() -> None:
    clock = Clock()
    with serving("429:7", "503:3") as server:
        generator = server_at(server.url, backoff=Backoff(retries=3, first=0.001, most=60))
        clock.into(generator._pace)
        (reply,) = generate(generator, [GenRequest("p")])
    assert reply.texts == ["answer to 0"]
    assert {7, 3} <= set(clock.waits)


@pytest.mark.parametrize("status", ["401", "403", "404"])
def test_a_refusal_that_holds_for_all_requests_ends_the_run(status: str) -> None:
    with serving(*[status] * 9) as server, pytest.raises(DataToolsError, match=f"answers {status} to model 'm'"):
        ask(server, 20, concurrency=2)
    assert len(server.asked) <= 4


def test_the_run_ends_when_nothing_but_failures_comes_back() -> None:
    with serving(*["500"] * 9) as server, pytest.raises(DataToolsError, match=r"8 requests in a row .* 'http_500'"):
        ask(server, 100, concurrency=1, backoff=Backoff(retries=0))
    assert len(server.asked) < 20


def test_the_key_is_sent_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-very-secret")
    with serving("400") as server:
        inner = server_at(server.url, key_variable="SOME_KEY")
        journal = Journal(tmp_path / "journal.jsonl")
        (reply,) = generate(Journaled(journal, inner, inner.identity), [GenRequest("p")])
        (good,) = generate(Journaled(journal, inner, inner.identity), [GenRequest("p")])
        journal.close()
        assert server.headers[0]["Authorization"] == "Bearer sk-very-secret"
    assert reply.failures[0].detail == "no, Bearer [key]"
    assert good.texts == ["answer to 0"]
    assert "sk-very-secret" not in (tmp_path / "journal.jsonl").read_text()
    assert "sk-very-secret" not in repr(inner.settings) + repr(dict(inner.identity))
    with serving("401") as server, pytest.raises(DataToolsError) as refused:
        ask(server, key_variable="SOME_KEY")
    assert "sk-very-secret" not in str(refused.value)
    assert "key from SOME_KEY: given" in str(refused.value)


def test_a_prefill_continues_the_assistants_turn() -> None:
    request = GenRequest("What is 2 + 2?", prefill="Step 1:", temperature=0.5, top_p=0.9, max_tokens=7, stop=("\n",))
    with serving() as server:
        generate(server_at(server.url), [request])
        generate(server_at(server.url, endpoint="completions", template="Q: {prompt}\nA: "), [request])
    chat, text = server.asked
    assert server.paths == ["/v1/chat/completions", "/v1/completions"]
    assert chat["messages"] == [
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "Step 1:"},
    ]
    assert (chat["continue_final_message"], chat["add_generation_prompt"]) == (True, False)
    assert text["prompt"] == "Q: What is 2 + 2?\nA: Step 1:"
    shared = {"model": "m", "temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "stop": ["\n"], "seed": 0}
    assert shared.items() <= chat.items()
    assert shared.items() <= text.items()


def test_a_stop_text_that_the_server_wrote_is_cut_off() -> None:
    with serving(answer=lambda body: "one\ntwo\nthree") as server:
        (reply,) = generate(server_at(server.url), [GenRequest("p", stop=("three", "\ntwo"))])
    assert reply.texts == ["one"]


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"])
def test_text_that_no_file_can_hold_is_a_failure(text: str) -> None:
    with serving(answer=lambda body: text) as server:
        (reply,) = generate(server_at(server.url), [GenRequest("p")])
    assert reply.failures[0].reason == "unusable_text"


def test_without_a_prefill_messages_stay_as_they_are() -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    with serving() as server:
        generate(server_at(server.url, body={"top_k": 5}), [GenRequest(messages)])
    assert server.asked[0]["messages"] == messages
    assert server.asked[0]["top_k"] == 5
    assert "continue_final_message" not in server.asked[0]


def test_several_answers_have_seeds_of_their_own_and_stand_in_their_order() -> None:
    with serving() as server:
        first = generate(server_at(server.url), [GenRequest("p", n=5, seed=3)])[0].texts
        again = generate(server_at(server.url, concurrency=1), [GenRequest("p", n=5, seed=3)])[0].texts
    assert len(set(first)) == 5
    assert first == again


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/v1", "must be like http"),
        ("http://user:pass@host/v1", "no user, password or query"),
        ("https://host/v1?key=1", "no user, password or query"),
        ("http://host:port/v1", "is no number"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(url: str, message: str) -> None:
    with pytest.raises(DataToolsError, match=message):
        Place.of(url)


def test_waits_double_up_to_a_limit_and_are_spread() -> None:
    backoff, rng = Backoff(first=1, most=10), random.Random(0)
    for attempt, ceiling in enumerate([1, 2, 4, 8, 10, 10]):
        waits = [backoff.seconds(attempt, None, rng) for _ in range(50)]
        assert ceiling / 2 <= min(waits) < max(waits) <= ceiling
    assert backoff.seconds(0, 3.5, rng) == 3.5
    assert backoff.seconds(0, 1000, rng) == 10
    assert backoff.seconds(10_000, None, rng) <= 10


def test_retry_after_may_be_seconds_a_date_or_nonsense() -> None:
    assert retry_after({"retry-after": "1.5"}) == 1.5
    assert retry_after({}) is None
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({"retry-after": "nan"}) is None
    past = retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})
    assert past is not None
    assert past < 0


def test_a_limit_of_requests_a_minute_spaces_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pace, clock = Pace(per_minute=30), Clock()
    monkeypatch.setattr("data_tools.generators.patience.time.monotonic", lambda: clock.now)
    clock.into(pace)
    assert all(pace.wait() for _ in range(4))
    assert clock.waits == [2, 2, 2]
    clock.now += 60
    assert pace.wait(), "what was not used is not saved up"
    assert pace.wait()
    assert clock.waits == [2, 2, 2, 2]


def test_a_server_over_its_limit_is_so_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    pace, clock = Pace(), Clock()
    monkeypatch.setattr("data_tools.generators.patience.time.monotonic", lambda: clock.now)
    clock.into(pace)
    pace.hold(9)
    assert pace.wait()
    assert pace.wait()
    assert clock.waits == [9]


def test_a_stopped_run_waits_for_no_turn() -> None:
    pace = Pace(per_minute=0.001)
    assert pace.wait()
    pace.stopped.set()
    assert not pace.wait()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"extra": ["Bearer very-secret-key"]}', "--body holds the key from SOME_KEY"),
        ('{"very-secret-key": 1}', "--body holds the key from SOME_KEY"),
        ('{"api_key": "other"}', "--body has a member 'api_key'"),
        ('{"extra_headers": {"Authorization": "Bearer other"}}', "--body has a member 'Authorization'"),
        ('{"x": [{"X-Api-Key": ""}]}', "--body has a member 'X-Api-Key'"),
        ("[]", "--body must be a JSON object"),
    ],
)
@pytest.mark.parametrize("generator", ["server", "recorded"])
def test_a_body_with_secrets_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    generator: str,
    body: str,
    message: str,
) -> None:
    monkeypatch.setenv("SOME_KEY", "very-secret-key")
    source = tmp_path / "in.jsonl"
    write_records(source, [{"prompt": "p", "answer": "1"}])
    recording = tmp_path / "answers.jsonl"
    recording.write_text("")
    asked = ["--generator", generator, "--url", "http://localhost:1/v1", "--model", "m", "--key-variable", "SOME_KEY"]
    out = ["--out", str(tmp_path / "out.jsonl"), "--recording", str(recording)]
    assert main(["scdpo", str(source), *out, *asked, "--body", body]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "very-secret-key" not in error
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"secret" not in file.read_bytes()


def test_a_placeholder_for_a_key_may_stand_in_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "EMPTY")
    options = GeneratorOptions(
        generator="server", url="http://localhost:1/v1", model="m", key_variable="SOME_KEY", body='{"x": "EMPTY"}'
    )
    with open_generator(options, RunInfo(0, Path("in.jsonl"), Path("out.jsonl"), dry_run=True)) as generator:
        assert generator is not None
