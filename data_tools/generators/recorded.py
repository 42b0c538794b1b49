"""Answers from a file: every pipeline runs with no model, and a journal can be played again."""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from data_tools.errors import DataToolsError
from data_tools.generators.request import Answer, GenFailure, GenRequest, GenResult
from data_tools.records import read_numbered

_NAMES = frozenset(field.name for field in fields(GenRequest))


class Recorded:
    """Plays back the lines of a JSON-lines file.

    A line of a journal, {"request": {...}, "text": ...}, answers exactly its request, seed and all. A line that is
    written by hand, {"prompt": ..., "prefill": ..., "texts": [...]}, answers requests with that beginning, whatever
    their seed: the first text the first time, then the next. What is not recorded fails as `not_recorded`.
    """

    together = 1

    def __init__(self, path: Path) -> None:
        self.path = path
        self._exact: dict[str, GenResult] = {}
        self._in_turn: dict[str, deque[GenResult]] = {}
        for line, record in read_numbered(path):
            self._add(record, f"{path}:{line}")

    @property
    def identity(self) -> Mapping[str, Any]:
        """A recording."""
        return {"generator": "recorded"}

    def answers(self, requests: Sequence[GenRequest]) -> Iterator[tuple[int, Answer]]:
        """What the file has for each request, in order."""
        for place, request in enumerate(requests):
            exact = self._exact.get(_key(request.content()))
            turn = self._in_turn.get(_key({"prompt": request.prompt, "prefill": request.prefill}))
            if exact is not None:
                yield place, exact
            elif turn:
                yield place, turn.popleft()
            else:
                yield place, GenFailure("not_recorded", f"{self.path} has no answer to this request")

    def _add(self, record: Mapping[str, Any], where: str) -> None:
        if "request" in record:
            request, text = record["request"], record.get("text")
            if not isinstance(request, dict) or set(request) != _NAMES or not isinstance(text, str):
                raise DataToolsError(f"{where}: 'request' must have {', '.join(sorted(_NAMES))}, and 'text' be text.")
            self._exact.setdefault(_key(request), GenResult(text, str(record.get("finish_reason", "stop"))))
            return
        texts = record.get("texts")
        if "prompt" not in record or not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise DataToolsError(f"{where}: a recording has 'request' and 'text', or 'prompt' and a list 'texts'.")
        key = _key({"prompt": record["prompt"], "prefill": record.get("prefill") or ""})
        self._in_turn.setdefault(key, deque()).extend(GenResult(text) for text in texts)


def _key(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True)
