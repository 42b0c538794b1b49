"""A small OpenAI-compatible server that misbehaves on order. What it answers is a function of what it is asked.

Troubles are a status ("500", or "429:0.4" with Retry-After), "truncated", "malformed", "shape", "null", "slow",
"dripping" and "closed".
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Answers requests; the server holds what is to go wrong."""

    server: Misbehaving
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.note(body, self.path, dict(self.headers))
        trouble = self.server.trouble_for(body)
        kind, _, value = trouble.partition(":")
        if kind.isdigit():
            said = {"error": {"message": f"no, {self.headers.get('Authorization', 'nobody')}"}}
            self.send(int(kind), json.dumps(said).encode(), {"Retry-After": value} if value else {})
        elif kind == "truncated":
            self.send(200, self.good(body)[:-20], {}, length=len(self.good(body)))
        elif kind == "malformed":
            self.send(200, b'{"choices": [{"mess')
        elif kind == "shape":
            self.send(200, b'{"choices": []}')
        elif kind == "null":
            self.send(200, b'{"choices": [{"message": {"content": null}, "finish_reason": "content_filter"}]}')
        elif kind == "slow":
            self.server.released.wait(20)
        elif kind == "dripping":
            self.drip()
        elif kind != "closed":
            self.send(200, self.good(body))

    def good(self, body: dict[str, Any]) -> bytes:
        text = self.server.answer(body)
        choice = {"text": text} if "prompt" in body else {"message": {"role": "assistant", "content": text}}
        return json.dumps({"choices": [{"index": 0, "finish_reason": "stop", **choice}]}).encode()

    def send(self, status: int, body: bytes, headers: dict[str, str] | None = None, length: int | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length or len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def drip(self) -> None:
        """One byte at a time, so that no single wait is long."""
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        try:
            for _ in range(400):
                self.wfile.write(b" ")
                self.wfile.flush()
                if self.server.released.wait(0.05):
                    return
        except OSError:
            return

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""


class Misbehaving(ThreadingHTTPServer):
    """`troubles[n]` is what happens to the n-th request of each content; when they are used up all goes well."""

    daemon_threads = True

    def __init__(self, *troubles: str, answer: Callable[[dict[str, Any]], str] | None = None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.troubles = troubles
        self.answer = answer or (lambda body: f"answer to {body['seed']}")
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def note(self, body: dict[str, Any], path: str, headers: dict[str, str]) -> None:
        with self._lock:
            self.asked.append(body)
            self.paths.append(path)
            self.headers.append(headers)

    def trouble_for(self, body: dict[str, Any]) -> str:
        key = json.dumps(body, sort_keys=True)
        with self._lock:
            number = self._seen.get(key, 0)
            self._seen[key] = number + 1
        return self.troubles[number] if number < len(self.troubles) else "good"


@contextmanager
def serving(
    *troubles: str, answer: Callable[[dict[str, Any]], str] | None = None, port: int = 0
) -> Iterator[Misbehaving]:
    """A running server; it is gone when the block ends."""
    server = Misbehaving(*troubles, answer=answer, port=port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
