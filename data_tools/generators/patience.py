"""When to ask again: backoff with jitter, what a server says about waiting, and how many requests a minute."""

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Answers that another try may better."""


@dataclass(frozen=True)
class Backoff:
    """Waiting between tries: up to `first` seconds, then twice, four times ... as much, never more than `most`.

    The wait is drawn between half of that and all of it, so that requests that failed together do not come back
    together.
    """

    retries: int = 6
    first: float = 1.0
    most: float = 60.0

    def seconds(self, attempt: int, asked: float | None, rng: random.Random) -> float:
        """The wait after try number `attempt` (from 0). `asked` is what the server wants; it is kept up to `most`."""
        if asked is not None:
            return min(max(asked, 0.0), self.most)
        ceiling = min(self.first * 2 ** min(attempt, 30), self.most)
        return rng.uniform(ceiling / 2, ceiling)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait, given as seconds or as a date."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return seconds if seconds == seconds else None  # not a NaN


class Pace:
    """Lets threads go on one by one: at most `per_minute` a minute (0: any number), and none before a given time."""

    def __init__(self, per_minute: float = 0.0) -> None:
        self._gap = 60.0 / per_minute if per_minute > 0 else 0.0
        self._next = 0.0
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    def wait(self) -> bool:
        """Wait for a turn; False when the run is being stopped."""
        with self._lock:
            turn = max(self._next, time.monotonic())
            self._next = turn + self._gap
        return self.sleep(turn - time.monotonic())

    def hold(self, seconds: float) -> None:
        """Nobody's turn comes within so many seconds: a server that is over its limit is so for all requests."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)

    def sleep(self, seconds: float) -> bool:
        """Sleep; False when the run is being stopped."""
        return not (self.stopped.wait(seconds) if seconds > 0 else self.stopped.is_set())
