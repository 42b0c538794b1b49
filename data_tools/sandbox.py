"""Untrusted Python in a process of its own: with limits on time, memory and files, without network.

Three walls: resource limits of the process, a network namespace without devices where the system grants one, and an
audit hook that refuses sockets, other processes, and files outside of the standard library before they are touched.
It is meant for solutions of exercises, not for people who attack the interpreter; run it in a container for those.
"""

import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

_RUNNER = """
import sys
def _shut():
    import ctypes, os, resource
    seconds, memory = int(sys.argv[1]), int(sys.argv[2])
    for kind, limit in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0),
                        (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 32)):
        resource.setrlimit(kind, (limit, limit))
    try:
        ctypes.CDLL(None).unshare(0x10000000 | 0x40000000)  # a user and a network namespace of its own
    except (OSError, AttributeError):
        pass
    roots = tuple({os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, os.path.dirname(os.__file__))})
    def refuse(event, arguments):
        if event == "open":
            path, mode = arguments[0], arguments[1]
            inside = isinstance(path, str) and os.path.realpath(path).startswith(roots)
            if not inside or (mode and set(mode) & set("wax+")):
                raise PermissionError("files are closed here")
        elif event.split(".")[0] in ("socket", "subprocess", "ctypes", "shutil", "ftplib", "urllib", "http", "signal"):
            raise PermissionError(event + " is closed here")
        elif event in ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.kill", "os.killpg",
                       "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.link",
                       "os.symlink", "os.truncate", "os.putenv", "os.listdir", "os.scandir", "pty.spawn"):
            raise PermissionError(event + " is closed here")
    sys.addaudithook(refuse)
def _main():
    import json, random
    random.seed(0)
    nonce, program, tests = json.loads(sys.stdin.read())
    out = sys.stdout.buffer
    say = lambda word: (out.write((nonce + word).encode()), out.flush())
    class Quiet:
        def write(self, text): return len(text)
        def flush(self): pass
    sys.stdout = sys.stderr = Quiet()
    names = {"__name__": "solution"}
    try:
        code = compile(program, "solution", "exec")
        checks = [compile(test, "test", "exec") for test in tests]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return say("broken")
    _shut()
    try:
        exec(code, names)
    except BaseException:
        return say("broken")
    for check in checks:
        try:
            exec(check, names)
        except AssertionError:
            return say("failed")
        except BaseException:
            return say("crashed")
    say("passed")
_main()
"""


class Outcome(Enum):
    """What became of a program and its tests."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    BROKEN = "broken"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Sandbox:
    """Limits on one run: seconds of the clock and of the processor, and bytes of memory."""

    seconds: int = 5
    memory: int = 512 * 2**20

    def run(self, program: str, tests: Sequence[str]) -> Outcome:
        """Run a program and then its tests, statement lists that raise where the program is wrong.

        PASSED if none raises, FAILED if the first to raise finds an assertion wrong, CRASHED if it raises anything
        else, BROKEN if the program itself does not run, STOPPED if time ran out or the process ended without a word.
        """
        import json

        nonce = secrets.token_hex(16)
        with tempfile.TemporaryDirectory() as folder:
            try:
                done = subprocess.run(
                    [sys.executable, "-I", "-S", "-B", "-c", _RUNNER, str(self.seconds), str(self.memory)],
                    input=json.dumps([nonce, program, list(tests)]).encode("utf-8", "replace"),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    timeout=self.seconds + 2,
                    cwd=folder,
                    env={"PATH": "", "PYTHONHASHSEED": "0"},
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return Outcome.STOPPED
        word = done.stdout.decode("utf-8", "replace")
        known = {nonce + outcome.value: outcome for outcome in Outcome}
        return known.get(word, Outcome.STOPPED)
