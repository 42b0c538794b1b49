"""Any server that speaks the OpenAI protocol: several requests at a time, each tried until there is an answer.

The key is read from the environment when a request is sent. It stands in no log, no journal, no manifest, and is
taken out of whatever a server says.
"""

import json
import os
import random
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

from data_tools.errors import DataToolsError
from data_tools.generators.exchange import Answered, ExchangeError, Place, post
from data_tools.generators.patience import RETRIED, Backoff, Pace, retry_after
from data_tools.generators.request import Answer, GenFailure, GenRequest, GenResult

USELESS = frozenset({401, 403, 404, 405})
"""Answers that mean the same for every request: wrong key, wrong address, wrong model."""

_SURROGATE = re.compile("[\ud800-\udfff]")  # one alone is no text


@dataclass(frozen=True)
class ServerSettings:
    """Where the server is and how it is asked. `template` is the text of a prompt for endpoint `completions`."""

    url: str
    model: str
    endpoint: Literal["chat", "completions"] = "chat"
    template: str = "{prompt}"
    key_variable: str = "OPENAI_API_KEY"
    concurrency: int = 8
    seconds: float = 120.0
    per_minute: float = 0.0
    backoff: Backoff = field(default_factory=Backoff)
    body: Mapping[str, Any] = field(default_factory=dict)


class Server:
    """A generator behind HTTP. One request asks for one answer, so that none is paid twice after a crash.

    Raises, from `answers`: `DataToolsError` when the server refuses every request for the same reason, and when it has
    failed so many in a row that going on makes no sense. What was answered before has been given out by then.
    """

    together = 1

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._place = Place.of(settings.url)
        self._pace = Pace(settings.per_minute)
        self._in_a_row = 0
        self._lock = threading.Lock()

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model and how it is asked; not the address, which may change from run to run."""
        s = self.settings
        return {"generator": "server", "model": s.model, "endpoint": s.endpoint, "template": s.template} | (
            {"body": dict(s.body)} if s.body else {}
        )

    def answers(self, requests: Sequence[GenRequest]) -> Iterator[tuple[int, Answer]]:
        """Answers in the order of their arrival.

        A request is sent when an answer has been taken: what is under way or not yet kept is never more than
        `concurrency`.
        """
        self._pace.stopped.clear()
        pool = ThreadPoolExecutor(self.settings.concurrency, thread_name_prefix="request")
        try:
            left = iter(enumerate(requests))
            under_way = {pool.submit(self._answer, one): i for i, one in islice(left, self.settings.concurrency)}
            while under_way:
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    answer = future.result()
                    yield under_way.pop(future), answer
                    self._count(answer)
                    under_way |= {pool.submit(self._answer, one): i for i, one in islice(left, 1)}
        finally:
            self._pace.stopped.set()  # wakes those that wait for another try
            pool.shutdown(wait=True, cancel_futures=True)

    def _answer(self, request: GenRequest) -> Answer:
        path, body = _body(self.settings, request)
        data = json.dumps(body).encode()
        rng = random.Random(request.seed)
        backoff = self.settings.backoff
        for attempt in range(backoff.retries + 1):
            if not self._pace.wait():
                break
            try:
                answered = post(self._place, path, data, self._headers(), seconds=self.settings.seconds)
                found = self._read(answered)
                asked = retry_after(answered.headers)
            except ExchangeError as error:
                found, asked = _Refusal(error.reason, str(error), again=error.reason != "too_large"), None
            if isinstance(found, GenResult):
                return _stopped(found, request.stop)
            failure = GenFailure(found.reason, self._scrubbed(found.detail), passes=found.again)
            if not found.again or attempt == backoff.retries:
                return failure
            seconds = backoff.seconds(attempt, asked, rng)
            if found.reason == "http_429":
                self._pace.hold(seconds)
            if not self._pace.sleep(seconds):
                return failure
        return GenFailure("stopped", "the run was stopped", passes=True)

    def _read(self, answered: Answered) -> "GenResult | _Refusal":
        if answered.status in USELESS:
            said = self._scrubbed(_said(answered.body))
            raise DataToolsError(
                f"{self.settings.url} answers {answered.status} to model '{self.settings.model}': {said} "
                f"(key from {self.settings.key_variable}: {'given' if self._key() else 'none'})"
            )
        if answered.status != 200:
            return _Refusal(
                f"http_{answered.status}",
                _said(answered.body),
                again=answered.status in RETRIED or answered.status >= 500,
            )
        return _result(answered.body)

    def _count(self, answer: Answer) -> None:
        """Give up when nothing but failures comes back. Raises: `DataToolsError`."""
        failed = isinstance(answer, GenFailure) and answer.reason not in ("http_400", "http_413", "http_422")
        self._in_a_row = self._in_a_row + 1 if failed else 0
        if self._in_a_row >= max(8, 2 * self.settings.concurrency) and isinstance(answer, GenFailure):
            raise DataToolsError(
                f"{self.settings.url}: {self._in_a_row} requests in a row had no answer, the last one for "
                f"'{answer.reason}': {answer.detail}. What was answered is kept; the same command goes on there."
            )

    def _headers(self) -> dict[str, str]:
        key = self._key()
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        return headers | ({"Authorization": f"Bearer {key}"} if key else {})

    def _key(self) -> str:
        return os.environ.get(self.settings.key_variable, "").strip()

    def _scrubbed(self, text: str) -> str:
        key = self._key()
        return text.replace(key, "[key]") if key else text


@dataclass(frozen=True)
class _Refusal:
    reason: str
    detail: str
    again: bool


def _body(settings: ServerSettings, request: GenRequest) -> tuple[str, dict[str, Any]]:
    """Path and content of a request for one answer."""
    body: dict[str, Any] = {
        "model": settings.model,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.max_tokens,
        "seed": request.seed,
        **({"stop": list(request.stop)} if request.stop else {}),
        **settings.body,
    }
    if settings.endpoint == "completions":
        if not isinstance(request.prompt, str):
            raise DataToolsError("--endpoint completions takes prompts of text; these are messages.")
        return "completions", body | {"prompt": settings.template.replace("{prompt}", request.prompt) + request.prefill}
    messages = request.prompt if isinstance(request.prompt, list) else [{"role": "user", "content": request.prompt}]
    if not request.prefill:
        return "chat/completions", body | {"messages": messages}
    begun = {"role": "assistant", "content": request.prefill}
    # vLLM and SGLang go on within the last message when asked so; without it they would open another turn
    flags = {"continue_final_message": True, "add_generation_prompt": False}
    return "chat/completions", body | {"messages": [*messages, begun], **flags}


def _result(body: bytes) -> GenResult | _Refusal:
    try:
        choice = json.loads(body)["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        finish = choice.get("finish_reason")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        return _Refusal("malformed_body", f"no answer can be read from the reply ({type(error).__name__})", again=True)
    if not isinstance(text, str):
        return _Refusal("no_text", "the reply holds no text", again=False)
    if "\x00" in text or _SURROGATE.search(text):
        return _Refusal("unusable_text", "the reply holds characters that no file of rows may hold", again=False)
    return GenResult(text, finish if isinstance(finish, str) else "stop")


def _stopped(result: GenResult, stop: Sequence[str]) -> GenResult:
    """Some servers write the stop text as well, or a little more."""
    cuts = [at for text in stop if (at := result.text.find(text)) >= 0]
    return replace(result, text=result.text[: min(cuts)], finish_reason="stop") if cuts else result


def _said(body: bytes) -> str:
    """What a server gives as the reason, in at most 300 characters."""
    text = body[:5000].decode("utf-8", "replace")
    try:
        content = json.loads(text)
        error = content.get("error", content.get("detail", content))
        text = error.get("message", text) if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError, RecursionError):
        pass
    return " ".join(str(text).split())[:300]
