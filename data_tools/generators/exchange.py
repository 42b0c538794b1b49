"""One HTTP request with a deadline that covers all of it: a server that drips its answer cannot hold up a run."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from data_tools.errors import DataToolsError

MAX_BODY = 64 * 1024 * 1024
"""Bytes of an answer. More is no answer to a request for text."""


@dataclass(frozen=True)
class Place:
    """A server: scheme, host, port, and what its paths begin with."""

    secure: bool
    host: str
    port: int | None
    path: str

    @classmethod
    def of(cls, url: str) -> "Place":
        """Raises: `DataToolsError` for what is no plain http address; one with a password would end in manifests."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DataToolsError(f"--url must be like http://localhost:8000/v1; got '{url}'.")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise DataToolsError("--url must hold no user, password or query; a key comes from the environment.")
        try:
            port = parts.port
        except ValueError:
            raise DataToolsError(f"--url: the port of '{url}' is no number.") from None
        return cls(parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))


@dataclass(frozen=True)
class Answered:
    """Status, headers with names in lower case, and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ExchangeError(Exception):
    """No whole answer came back; `reason` is connection, timeout, truncated_body or too_large."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def post(place: Place, path: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> Answered:
    """Send a request and read the whole answer within `seconds`. Redirects are not followed.

    Raises: `ExchangeError`.
    """
    kind = http.client.HTTPSConnection if place.secure else http.client.HTTPConnection
    connection = kind(place.host, place.port, timeout=seconds)
    late = threading.Event()
    timer = threading.Timer(seconds, _cut_off, (connection, late))
    timer.daemon = True
    timer.start()
    try:
        connection.request("POST", f"{place.path}/{path}", body, dict(headers))
        response = connection.getresponse()
        answered = Answered(response.status, {k.lower(): v for k, v in response.getheaders()}, _whole(response))
    except ExchangeError:
        raise
    except Exception as error:
        if not late.is_set() and not isinstance(error, OSError | http.client.HTTPException):
            raise  # a socket that is shut under its reader may fail in any way
        raise _explained(error, late=late.is_set(), seconds=seconds) from None
    finally:
        timer.cancel()
        connection.close()
    if late.is_set():
        raise ExchangeError("timeout", f"no whole answer within {seconds:g} s")
    return answered


def _cut_off(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    late.set()
    sock = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError):  # closed meanwhile
            sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads


def _whole(response: http.client.HTTPResponse) -> bytes:
    length = response.length
    body = response.read(MAX_BODY + 1)
    if len(body) > MAX_BODY:
        raise ExchangeError("too_large", f"the answer has over {MAX_BODY:,} bytes")
    if length is not None and len(body) < length:
        raise http.client.IncompleteRead(body, length - len(body))
    return body


def _explained(error: Exception, *, late: bool, seconds: float) -> ExchangeError:
    if late or isinstance(error, TimeoutError):
        return ExchangeError("timeout", f"no whole answer within {seconds:g} s")
    if isinstance(error, http.client.IncompleteRead):
        return ExchangeError("truncated_body", f"the answer broke off after {len(error.partial)} bytes")
    name = type(error).__name__
    return ExchangeError("connection", f"{name}: {error.strerror or error}" if isinstance(error, OSError) else name)
