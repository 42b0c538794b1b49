"""Requests, the journal that keeps their answers, recordings, and the options that choose among generators."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from data_tools.command import RunInfo
from data_tools.errors import DataToolsError
from data_tools.generators import (
    Answer,
    Continuations,
    GeneratorOptions,
    GenFailure,
    GenRequest,
    GenResult,
    Journal,
    Journaled,
    Recorded,
    generate,
    open_generator,
    seed_of,
)
from data_tools.records import write_records


class Counting:
    """Answers with the seed; fails or stops where it is told to. `asked` keeps what it was asked, call by call."""

    identity: ClassVar[dict[str, str]] = {"generator": "counting"}

    def __init__(self, *, together: int = 1, stop_after: int | None = None, failing: Sequence[int] = ()) -> None:
        self.together, self.stop_after, self.failing = together, stop_after, failing
        self.asked: list[int] = []

    def answers(self, requests: Sequence[GenRequest]) -> Iterator[tuple[int, Answer]]:
        for place, request in enumerate(requests):
            if self.stop_after is not None and len(self.asked) >= self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(request.seed)
            failed = request.seed in self.failing
            yield place, GenFailure("broken", "no") if failed else GenResult(f"text {request.seed}", "stop")


def requests(count: int) -> list[GenRequest]:
    return [GenRequest("p", temperature=1.0, seed=seed) for seed in range(count)]


def texts(journal: Path, generator: Counting, asked: Sequence[GenRequest]) -> list[list[str]]:
    file = Journal(journal)
    try:
        return [reply.texts for reply in generate(Journaled(file, generator, generator.identity), asked)]
    finally:
        file.close()


def test_one_answer_more_changes_none_of_the_others() -> None:
    few, many = (generate(Counting(), [GenRequest("p", n=n, seed=5)])[0].texts for n in (3, 4))
    assert many[:3] == few
    assert len(set(many)) == 4


def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    broken, whole = Counting(stop_after=6), Counting()
    with pytest.raises(KeyboardInterrupt):
        texts(journal, broken, requests(10))
    assert texts(journal, whole, requests(10)) == [[f"text {n}"] for n in range(10)]
    assert sorted(broken.asked + whole.asked) == list(range(10))


@pytest.mark.parametrize("cut", [1, 20, -1, -40])
def test_a_half_written_line_costs_only_its_own_answer(tmp_path: Path, cut: int) -> None:
    journal, again = tmp_path / "journal.jsonl", Counting()
    texts(journal, Counting(), requests(3))
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]) + lines[2][:cut])
    assert texts(journal, again, requests(3)) == [[f"text {n}"] for n in range(3)]
    assert again.asked == [2]
    assert journal.read_bytes() == whole


def test_a_damaged_line_in_the_middle_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal, again = tmp_path / "journal.jsonl", Counting()
    texts(journal, Counting(), requests(3))
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + b'{"key": 3}\n' + b"\x00\xff\n" + lines[2])
    assert texts(journal, again, requests(3)) == [[f"text {n}"] for n in range(3)]
    assert again.asked == [1]
    assert "2 lines are no answers" in caplog.text


def test_failures_are_tried_again_in_the_next_run(tmp_path: Path) -> None:
    journal, again = tmp_path / "journal.jsonl", Counting()
    assert texts(journal, Counting(failing=[1]), requests(3)) == [["text 0"], [], ["text 2"]]
    assert texts(journal, again, requests(3)) == [["text 0"], ["text 1"], ["text 2"]]
    assert again.asked == [1]


def test_another_model_has_answers_of_its_own(tmp_path: Path) -> None:
    file, generator = Journal(tmp_path / "journal.jsonl"), Counting()
    for model in ("a", "b", "a"):
        generate(Journaled(file, generator, {"model": model}), requests(2))
    assert generator.asked == [0, 1, 0, 1]
    assert len(file) == 4
    file.close()


def test_equal_requests_are_asked_once(tmp_path: Path) -> None:
    generator = Counting()
    assert texts(tmp_path / "journal.jsonl", generator, requests(2) * 3) == [["text 0"], ["text 1"]] * 3
    assert generator.asked == [0, 1]


def test_what_is_computed_together_is_asked_for_in_whole_groups(tmp_path: Path) -> None:
    journal, again = tmp_path / "journal.jsonl", Counting(together=4)
    with pytest.raises(KeyboardInterrupt):
        texts(journal, Counting(together=4, stop_after=6), requests(10))
    assert texts(journal, again, requests(10)) == [[f"text {n}"] for n in range(10)]
    assert again.asked == [4, 5, 6, 7, 8, 9], "the first group is whole, the second was cut"


def test_two_runs_cannot_write_one_journal(tmp_path: Path) -> None:
    first = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(DataToolsError, match="another run is writing this journal"):
        Journal(tmp_path / "journal.jsonl")
    first.close()


def test_texts_of_any_kind_come_back_from_the_journal(tmp_path: Path) -> None:
    awkward = "a\u2028b\ud800 \x00 ü\r\n"

    class Awkward(Counting):
        def answers(self, requests: Sequence[GenRequest]) -> Iterator[tuple[int, Answer]]:
            yield from ((place, GenResult(awkward, "length")) for place in range(len(requests)))

    path = tmp_path / "journal.jsonl"
    assert texts(path, Awkward(), requests(1)) == texts(path, Counting(), requests(1)) == [[awkward]]


def test_a_journal_is_a_recording(tmp_path: Path) -> None:
    texts(tmp_path / "journal.jsonl", Counting(), requests(3))
    replay = Recorded(tmp_path / "journal.jsonl")
    assert [reply.texts for reply in generate(replay, requests(3)[::-1])] == [["text 2"], ["text 1"], ["text 0"]]
    assert generate(replay, [GenRequest("p", temperature=0.5)])[0].failures[0].reason == "not_recorded"


def test_a_recording_by_hand_gives_its_texts_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    write_records(path, [{"prompt": "p", "texts": ["a", "b"]}, {"prompt": "p", "prefill": "x", "texts": ["c"]}])
    replies = generate(Recorded(path), [GenRequest("p", n=3), GenRequest("p", prefill="x")])
    assert [reply.texts for reply in replies] == [["a", "b"], ["c"]]
    assert [failure.reason for failure in replies[0].failures] == ["not_recorded"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"prompt": "p"}, "a recording has 'request' and 'text', or 'prompt' and a list 'texts'"),
        ({"prompt": "p", "texts": [1]}, "a recording has"),
        ({"request": {"prompt": "p"}, "text": "t"}, "'request' must have max_tokens, n, prefill"),
    ],
)
def test_recordings_that_cannot_be_read_name_the_line(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    (tmp_path / "r.jsonl").write_text('{"prompt": "p", "texts": []}\n' + json.dumps(line) + "\n")
    with pytest.raises(DataToolsError, match=rf"r\.jsonl:2: {message}"):
        Recorded(tmp_path / "r.jsonl")


def test_seeds_fit_every_server_and_differ_by_place() -> None:
    seeds = {seed_of(0, f"row {n}", "collect") for n in range(1000)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert seed_of(1, "a") != seed_of(0, "a")


def test_the_opened_fence_of_a_prompt_begins_the_assistants_turn(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    prefill = "The edited passage:\n```\n"
    write_records(path, [{"prompt": "Edit this.", "prefill": prefill, "texts": ["a = 1", "b\n```\nDone."]}])
    continuations = Continuations(Recorded(path))
    assert continuations.generate([f"Edit this.\n\n{prefill}"] * 2) == ["a = 1\n```", "b\n```\nDone."]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generator": "server"}, "--generator server needs --url and --model"),
        ({"generator": "recorded"}, "--generator recorded needs --recording"),
        ({"generator": "server", "url": "http://h/v1", "model": "m", "body": "[1]"}, "--body must be a JSON object"),
        ({"generator": "server", "url": "http://h/v1", "model": "m", "body": "{"}, "--body is no JSON"),
        (
            {"generator": "server", "url": "http://h/v1", "model": "m", "endpoint": "completions", "template": "x"},
            "--template must contain {prompt}",
        ),
    ],
)
def test_options_that_lack_something_say_what(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    run = RunInfo(0, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    with pytest.raises(DataToolsError, match=message), open_generator(GeneratorOptions(**options), run):
        pass


def test_a_dry_run_asks_nothing_and_writes_no_journal(tmp_path: Path) -> None:
    options = GeneratorOptions(generator="server", url="http://127.0.0.1:9/v1", model="m")
    run = RunInfo(0, tmp_path / "in.jsonl", tmp_path / "out.jsonl", dry_run=True)
    with open_generator(options, run) as generator:
        (reply,) = generate(generator, [GenRequest("p")])
    assert reply.failures[0].reason == "not_generated"
    assert list(tmp_path.iterdir()) == []
