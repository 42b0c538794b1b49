"""Symbolic comparison in a process of its own: `python -m data_tools._symbolic` answers, `SymbolicProcess` asks.

Evaluating 9**9**9 is one call into C that no signal interrupts; killing the process is the only way out of it.
"""

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time

MEMORY = 2 * 2**30
"""Bytes of address space that the process may take."""

START_SECONDS = 60.0


class SymbolicProcess:
    """Asks a process, which starts at the first question and again after each that it did not answer in time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._owner = 0

    def equal(self, a: str, b: str, *, seconds: float) -> bool | None:
        """Whether two expressions are equal; None if they cannot be read, or not within the time."""
        with self._lock:
            if self._process is None or self._process.poll() is not None or self._owner != os.getpid():
                self._start()
            assert self._process is not None
            try:
                assert self._process.stdin is not None
                self._process.stdin.write(json.dumps([a, b]).encode() + b"\n")
                self._process.stdin.flush()
            except OSError:
                self.stop()
                return None
            answer = self._answer(seconds)
            if answer is None:
                self.stop()
            return None if answer is None else {b"1": True, b"0": False}.get(answer.strip())

    def stop(self) -> None:
        """Kill the process."""
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            with contextlib.suppress(OSError):
                self._process.communicate()
        self._process = None

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "data_tools._symbolic"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._owner = os.getpid()
        atexit.register(self.stop)
        if self._answer(START_SECONDS) is None:
            self.stop()
            raise RuntimeError("the process that compares expressions did not start; is math-verify installed?")

    def _answer(self, seconds: float) -> bytes | None:
        """The next line, or None if it does not come in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        file = self._process.stdout.fileno()
        end = time.monotonic() + seconds
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([file], [], [], max(end - time.monotonic(), 0))
            piece = os.read(file, 1) if ready else b""
            if not piece:
                return None
            line += piece
        return line


def _serve() -> None:
    """Answer questions from stdin, one a line: 1 for equal, 0 for different, ? for neither."""
    import logging

    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        answer = "?"
        try:
            a, b = (parse(f"${text}$", raise_on_error=False) for text in json.loads(line))
            if a and b:
                answer = "1" if verify(a, b) or verify(b, a) else "0"
        except Exception:  # whatever the libraries raise, the question has no answer
            answer = "?"
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
